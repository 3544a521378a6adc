"""Tests of model_set.py: which model hears which language, and which models are in memory."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any

import pytest

from pipeline.errors import EngineFailed, ModelUnavailable
from pipeline.recognition.engine import Engine
from pipeline.recognition.model_set import KnownModel, ModelSet
from tests.pipeline.scheduling import Model, window

SMALL = KnownModel("small", frozenset({"en"}), 10)
WIDE = KnownModel("wide", frozenset({"en", "fr", "es"}), 20)
LARGE = KnownModel("large", frozenset({"en", "fr", "de"}), 60)


def use(
    body: Callable[[ModelSet, list[str]], Coroutine[Any, Any, None]], *models: KnownModel, **options: Any
) -> list[str]:
    """Run *body* with a set of *models*, and return which were loaded, in order."""
    loaded: list[str] = []

    def make(name: str) -> Engine:
        loaded.append(name)
        if name == "large" and options.get("broken"):
            raise ModelUnavailable("its file is damaged")
        known = next(model for model in models if model.name == name)
        return Model(model=name, languages=known.languages, gate=threading.Semaphore(100))

    async def main() -> None:
        given = {key: value for key, value in options.items() if key != "broken"}
        with closing(ModelSet(models, make, **given)) as made:
            await body(made, loaded)

    asyncio.run(main())
    return loaded


def test_a_model_is_loaded_when_it_is_first_wanted_and_once():
    async def body(models: ModelSet, loaded: list[str]) -> None:
        assert loaded == []
        await asyncio.gather(*(models.model_for("fr") for _ in range(3)))
        assert loaded == ["wide"]
        answer = await (await models.model_for("fr")).recognise(window(7), tenant="a")
        assert answer.avg_logprob == -7

    assert use(body, WIDE, SMALL, routes={"en": "small"}) == ["wide"]


def test_each_language_is_heard_by_the_model_that_is_named_for_it_or_by_the_first_that_knows_it():
    async def body(models: ModelSet, _: list[str]) -> None:
        names = {code: models.name_for(code) for code in ("en", "fr", "es", "de", None)}
        assert names == {"en": "small", "fr": "wide", "es": "wide", "de": "large", None: "wide"}
        assert models.languages == {"en", "fr", "es", "de"}
        assert (models.first, models.shows_itself("en"), models.shows_itself("fr")) == ("en", True, False)
        with pytest.raises(EngineFailed, match="no model hears ja"):
            await models.model_for("ja")

    use(body, WIDE, SMALL, LARGE, routes={"en": "small"})


def test_models_of_one_language_detect_nothing():
    async def body(models: ModelSet, _: list[str]) -> None:
        assert await models.detector() is None

    assert use(body, SMALL) == []


def test_a_model_that_was_idle_longest_makes_room_for_one_that_is_wanted():
    async def body(models: ModelSet, _: list[str]) -> None:
        for language in ("en", "es", "de"):
            await models.model_for(language)
        assert list(models.schedulers()) == ["large"], "60 of 70 bytes are used"
        await models.model_for("en")
        assert sorted(models.schedulers()) == ["large", "small"]

    loaded = use(body, WIDE, SMALL, LARGE, routes={"en": "small"}, memory=70)
    assert loaded == ["small", "wide", "large", "small"]


def test_models_that_stay_idle_are_unloaded_and_those_at_work_are_not():
    async def body(models: ModelSet, _: list[str]) -> None:
        await models.model_for("fr")
        assert models.unload_idle(60) == []
        assert models.unload_idle(0) == ["wide"]
        assert models.schedulers() == {}

    use(body, WIDE)


def test_a_model_that_cannot_be_loaded_fails_its_request_and_no_other():
    async def body(models: ModelSet, _: list[str]) -> None:
        with pytest.raises(EngineFailed, match="large cannot be loaded: its file is damaged"):
            await models.model_for("de")
        await models.model_for("fr")

    use(body, WIDE, LARGE, broken=True)
