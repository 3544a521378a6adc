"""What holds for all tests."""

from pathlib import Path

import pytest
from hypothesis import settings

from pipeline.recognition.engines.models import bundled_folder

# Shared machines stand still for seconds: how long one example takes says nothing.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def bundled() -> Path:
    """The folder of tiny.en, the real model that comes with the installation."""
    folder = bundled_folder()
    assert folder is not None, "the bundled model is not installed: run scripts/setup model"
    return folder
