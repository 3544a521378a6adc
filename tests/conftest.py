"""Settings and fixtures for all tests."""

from pathlib import Path

import pytest
from hypothesis import settings

from pipeline.recognition.engines.models import bundled_folder

# Shared machines can stop for seconds, so the time of one example says nothing.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def bundled() -> Path:
    """Return the folder of tiny.en, the real model of the installation."""
    folder = bundled_folder()
    assert folder is not None, "the bundled model is not installed: run scripts/setup model"
    return folder
