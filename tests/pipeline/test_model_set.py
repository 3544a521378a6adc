"""Tests of model_set.py: which model hears which language, and which models are in memory."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from pipeline.errors import EngineFailed, ModelUnavailable
from pipeline.recognition.engine import Engine
from pipeline.recognition.model_set import KnownModel, ModelSet
from tests.pipeline.scheduling import Model, window

SMALL = KnownModel("small", frozenset({"en"}), 10)
WIDE = KnownModel("wide", frozenset({"en", "fr", "es"}), 20)
LARGE = KnownModel("large", frozenset({"en", "fr", "de"}), 60)


@contextmanager
def model_set(*models: KnownModel, broken: bool = False, **options: Any) -> Iterator[tuple[ModelSet, list[str]]]:
    """Yield a set of *models*, and which were loaded, in order. If *broken*, the large one cannot be."""
    loaded: list[str] = []

    def make(name: str) -> Engine:
        loaded.append(name)
        if name == "large" and broken:
            raise ModelUnavailable("its file is damaged")
        known = next(model for model in models if model.name == name)
        return Model(model=name, languages=known.languages, gate=threading.Semaphore(100))

    with closing(ModelSet(models, make, **options)) as made:
        yield made, loaded


async def test_a_model_is_loaded_when_it_is_first_wanted_and_once():
    with model_set(WIDE, SMALL, routes={"en": "small"}) as (models, loaded):
        assert loaded == []
        await asyncio.gather(*(models.model_for("fr") for _ in range(3)))
        assert loaded == ["wide"]
        answer = await (await models.model_for("fr")).recognise(window(7), tenant="a")
        assert answer.avg_logprob == -7
    assert loaded == ["wide"]


async def test_each_language_is_heard_by_the_model_that_is_named_for_it_or_by_the_first_that_knows_it():
    with model_set(WIDE, SMALL, LARGE, routes={"en": "small"}) as (models, _):
        names = {code: models.name_for(code) for code in ("en", "fr", "es", "de", None)}
        assert names == {"en": "small", "fr": "wide", "es": "wide", "de": "large", None: "wide"}
        assert models.languages == {"en", "fr", "es", "de"}
        assert (models.first, models.shows_itself("en"), models.shows_itself("fr")) == ("en", True, False)
        with pytest.raises(EngineFailed, match="No model here knows ja"):
            await models.model_for("ja")


async def test_models_of_one_language_detect_nothing():
    with model_set(SMALL) as (models, loaded):
        assert await models.detector() is None
    assert loaded == []


async def test_a_model_that_was_idle_longest_makes_room_for_one_that_is_wanted():
    with model_set(WIDE, SMALL, LARGE, routes={"en": "small"}, memory=70) as (models, loaded):
        for language in ("en", "es", "de"):
            await models.model_for(language)
        assert list(models.schedulers()) == ["large"], "60 of 70 bytes are used"
        await models.model_for("en")
        assert sorted(models.schedulers()) == ["large", "small"]
    assert loaded == ["small", "wide", "large", "small"]


async def test_models_that_stay_idle_are_unloaded_and_those_at_work_are_not():
    with model_set(WIDE) as (models, _):
        await models.model_for("fr")
        assert models.unload_idle(60) == []
        assert models.unload_idle(0) == ["wide"]
        assert models.schedulers() == {}


async def test_a_model_that_cannot_be_loaded_fails_its_request_and_no_other():
    with model_set(WIDE, LARGE, broken=True) as (models, _):
        with pytest.raises(EngineFailed, match="large cannot be loaded: its file is damaged"):
            await models.model_for("de")
        await models.model_for("fr")
