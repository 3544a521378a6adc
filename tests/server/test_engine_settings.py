"""Tests of the settings of models, with real models: the number type, the memory, and the time without use."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.errors import ModelUnavailable
from pipeline.recognition.engines.load import find_models
from server.engines import open_engines
from server.engines import settings as engine_settings
from tests.server.running import CLIP, SPEECH, run_server
from tests.server.serving import config
from tests.waiting import until

MODEL = SPEECH / "tiny-whisper"  # takes 150 MiB of the allowance, as each model does beside its weights


def models_in(folder: Path) -> str:
    """Return the setting for three models: the default, which is loaded at the start, and two for a language each."""
    for name in ("first", "spanish", "german"):
        (folder / name).symlink_to(MODEL)
    return f"{folder}/first, es={folder}/spanish, de={folder}/german"


@pytest.fixture
def chosen(tmp_path: Path) -> Mapping[str, str]:
    return {
        "ENGINE": "whisper",
        "DEVICE": "cpu",
        "DATA_DIR": str(tmp_path / "data"),
        "WHISPER_MODEL": models_in(tmp_path),
    }


@pytest.mark.parametrize("name", ["int8", "float32"])
def test_compute_type_is_the_number_type_of_the_model(chosen, name):
    [model, *_] = find_models(engine_settings(config(**chosen, COMPUTE_TYPE=name))).models
    assert model.load().compute_type == name


def test_a_compute_type_that_ctranslate2_does_not_know_is_refused_when_the_model_is_loaded(chosen):
    [model, *_] = find_models(engine_settings(config(**chosen, COMPUTE_TYPE="int9"))).models
    with pytest.raises(ModelUnavailable, match="int9"):
        model.load()


@pytest.mark.parametrize(("mib", "loaded"), [("350", ["german", "spanish"]), ("1000", ["first", "german", "spanish"])])
async def test_models_beyond_model_memory_mib_make_room_for_those_that_are_wanted(chosen, mib, loaded):
    with (
        ThreadPoolExecutor() as threads,
        open_engines(config(**chosen, MODEL_MEMORY_MIB=mib), threads, voices=False, live=False) as (engines, _),
    ):
        models = engines["production"].live.models
        for language in ("es", "de"):
            await models.model_for(language)
        assert sorted(models.schedulers()) == loaded


def test_a_model_without_use_for_model_idle_s_is_unloaded(tmp_path):
    said = "unloaded a model that nobody uses"
    with run_server(tmp_path / "data", WHISPER_MODEL=models_in(tmp_path), MODEL_IDLE_S="1") as server:
        client = server.client(server.new_key())
        answer = client.post("/v1/transcribe", files={"file": CLIP.read_bytes()}, data={"language": "de"})
        assert answer.is_success, answer.text
        until(lambda: any(said in line and "german" in line for line in server.log), max_s=30)
        assert not any(said in line and "first" in line for line in server.log), "it was loaded at the start"
