"""Fixtures that several tests of pipeline/ share."""

from collections.abc import Iterator

import pytest

from pipeline.ingest.isolation import Isolation
from pipeline.ingest.vad import Vad


@pytest.fixture(scope="module")
def isolation() -> Iterator[Isolation]:
    with Isolation() as made:
        yield made


@pytest.fixture(scope="module")
def voice() -> Vad:
    return Vad()
