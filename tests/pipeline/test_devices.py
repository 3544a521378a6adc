"""Tests of the choice of device: a GPU is used only if there are one and CUDA's libraries."""

import logging

import pytest

from pipeline.errors import ModelUnavailable
from pipeline.recognition.engines.whisper import engine as whisper


@pytest.mark.parametrize(
    ("wanted", "gpus", "device"), [("cpu", 1, "cpu"), (None, 0, "cpu"), (None, 1, "cuda"), ("cuda", 1, "cuda")]
)
def test_the_device_is_what_was_wanted_or_what_there_is(wanted, gpus, device, monkeypatch):
    monkeypatch.setattr(whisper.ctranslate2, "get_cuda_device_count", lambda: gpus)
    monkeypatch.setattr(whisper, "load_cuda", lambda: True)
    assert whisper.choose_device(wanted) == device


def test_a_gpu_without_its_libraries_is_told_of_and_not_used(monkeypatch, caplog):
    monkeypatch.setattr(whisper.ctranslate2, "get_cuda_device_count", lambda: 1)
    monkeypatch.setattr(whisper, "load_cuda", lambda: False)
    with caplog.at_level(logging.WARNING):
        assert whisper.choose_device(None) == "cpu"
    assert "scripts/setup cuda" in caplog.text
    with pytest.raises(ModelUnavailable, match="scripts/setup cuda"):
        whisper.choose_device("cuda")


def test_a_gpu_that_was_asked_for_and_is_not_there_is_an_error(monkeypatch):
    monkeypatch.setattr(whisper.ctranslate2, "get_cuda_device_count", lambda: 0)
    with pytest.raises(ModelUnavailable, match="no NVIDIA GPU"):
        whisper.choose_device("cuda")
