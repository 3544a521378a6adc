"""One server for the tests of a file that leave nothing behind which disturbs the next."""

from collections.abc import Iterator

import pytest

from tests.abuse.arena import Arena, arena


@pytest.fixture(scope="session")
def shared_arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with arena(tmp_path_factory.mktemp("abuse")) as started:
        yield started


@pytest.fixture
def ring(shared_arena: Arena) -> Iterator[Arena]:
    """The shared server; strangers leave it after the test."""
    yield shared_arena
    shared_arena.leave()
