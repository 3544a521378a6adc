"""Fixtures for the tests of routes, each of which has a server of its own in this process."""

from collections.abc import Iterator

import httpx
import pytest

from tests.server.serving import AppServer


@pytest.fixture
def client(server: AppServer) -> Iterator[httpx.Client]:
    """Yield a client of the file's server, with a new account's key."""
    with server.new_client() as client:
        yield client
