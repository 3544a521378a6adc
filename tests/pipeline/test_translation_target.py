"""Tests of how the words of a recording are translated while a translator is slow, broken or wrong."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from pipeline.audio import position, seconds
from pipeline.translation.target import GivenUp, Happened, Outage, Target, TargetOptions, Translated
from pipeline.translation.translator import TranslationRequest, TranslatorUnavailable, UnusableAnswer
from pipeline.translation.units import Backlog, NumberedWord, spans_of
from pipeline.words import Word

pytestmark = pytest.mark.virtual_time


@dataclass
class Scripted:
    """A translator that answers as *answer* says: with upper case, an exception, or after some seconds."""

    answer: Callable[[TranslationRequest, int], str | Exception | float]
    listens = False
    asked: list[TranslationRequest] = field(default_factory=list)
    running: int = 0

    async def translate(self, request: TranslationRequest) -> str:
        assert self.running == 0, "one call in flight"
        self.running += 1
        self.asked.append(request)
        try:
            match self.answer(request, len(self.asked)):
                case float() as delay_s:
                    await asyncio.sleep(delay_s)
                    return request.text.upper()
                case str() as text:
                    return text
                case Exception() as error:
                    raise error
        finally:
            self.running -= 1


def sentence(number: int, *, live: bool = True) -> list[NumberedWord]:
    now = asyncio.get_running_loop().time()
    return [
        NumberedWord(
            3 * number + index,
            Word(text, position(2 * number + index / 2), position(2 * number + index / 2 + 0.5), 0.9, language="en"),
            heard_at=now if live else None,
        )
        for index, text in enumerate((f"one{number}", "two", "three."))
    ]


async def translate(
    translator: Scripted, *, count: int, every_s: float = 2.0, timeout_s: float = 20.0, wait_s: float = 60.0
) -> tuple[Target, list[Happened]]:
    """Say *count* sentences, one every *every_s* seconds, and translate them."""
    options = TargetOptions(language="de", terms=("Siobhan",), timeout_s=timeout_s, wait_s=wait_s)
    target, happened = Target(options, translator, Backlog("de")), []

    async def write(one: Happened) -> None:
        happened.append(one)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(target.run(write))
        for number in range(count):
            target.add(sentence(number))
            await asyncio.sleep(every_s)
        target.finish()
    return target, happened


def numbers(happened: Sequence[Happened]) -> list[int]:
    return [one.number for it in happened if isinstance(it, Translated) for one in it.unit.words]


def lacking(target: Target, happened: Sequence[Happened]) -> list[tuple[int, int]]:
    """Return what has no translation, from where to where."""
    return spans_of(
        [*(one.unit for one in happened if isinstance(one, GivenUp)), *target.backlog.waiting(), *target.asked]
    )


async def test_each_unit_is_translated_with_the_two_before_it_and_the_terms():
    translator = Scripted(lambda request, _: request.text.upper())
    target, happened = await translate(translator, count=4)
    assert [one.text for one in happened] == [f"ONE{number} TWO THREE." for number in range(4)]
    assert translator.asked[3].context == (
        ("one1 two three.", "ONE1 TWO THREE."),
        ("one2 two three.", "ONE2 TWO THREE."),
    )
    assert translator.asked[3].terms == ("Siobhan",)
    assert (translator.asked[3].source, translator.asked[3].target) == ("en", "de")
    assert lacking(target, happened) == []


async def test_a_slow_translator_gives_longer_units_and_no_growing_delay():
    translator = Scripted(lambda _, __: 5.0)
    _, happened = await translate(translator, count=60, wait_s=30)
    lags = [one.lag_s for one in happened if isinstance(one, Translated)]
    assert numbers(happened) == list(range(180))
    assert max(lags) <= 10.0
    assert not [one for one in happened if isinstance(one, Outage)]
    assert len(translator.asked) < 30


async def test_a_translator_that_takes_twelve_seconds_is_said_to_be_late_once_and_until_when():
    target, happened = await translate(Scripted(lambda _, __: 12.0), count=20)
    assert numbers(happened) == list(range(60))
    assert [one for one in happened if isinstance(one, Outage)] == [Outage(0), Outage(0, position(39.5))]
    assert lacking(target, happened) == []


async def test_a_translator_is_not_said_to_be_late_when_the_words_were():
    now = asyncio.get_running_loop().time()
    target, happened = Target(TargetOptions(language="de"), Scripted(lambda _, __: 2.0), Backlog("de")), []

    async def write(one: Happened) -> None:
        happened.append(one)

    target.add(replace(one, heard_at=now - 30, final_at=now) for one in sentence(0))
    target.finish()
    await target.run(write)
    assert [(type(one), one.lag_s) for one in happened] == [(Translated, 32.0)]


async def test_failures_are_retried_with_growing_pauses_and_caught_up():
    loop, at = asyncio.get_running_loop(), []

    def answer(request: TranslationRequest, _: int) -> str | Exception:
        at.append(loop.time())
        return TranslatorUnavailable("status 500") if at[-1] - at[0] < 40 else request.text.upper()

    _, happened = await translate(Scripted(answer), count=40)
    assert [round(later - earlier) for earlier, later in pairwise(at[:7])] == [1, 2, 4, 8, 16, 32]
    assert sorted(numbers(happened)) == list(range(120)), "what was missed is translated then"
    late = [one.unit.first for one in happened if isinstance(one, Translated)][1:]
    assert late == sorted(late), "in the order in which it was said, but for the first that is answered"
    begun, ended = (one for one in happened if isinstance(one, Outage))
    assert begun == Outage(0)
    assert ended.since == 0
    assert 50 < seconds(ended.until) < 80


async def test_the_translator_is_left_alone_for_as_long_as_it_asks():
    loop, at = asyncio.get_running_loop(), []

    def answer(request: TranslationRequest, count: int) -> str | Exception:
        at.append(loop.time())
        return TranslatorUnavailable("status 429", retry_after_s=30) if count == 1 else request.text.upper()

    _, happened = await translate(Scripted(answer), count=30)
    assert at[1] - at[0] >= 30
    assert sorted(numbers(happened)) == list(range(90))


@pytest.mark.parametrize("bad", ["", "x" * 500, UnusableAnswer("status 400")])
async def test_an_answer_that_cannot_be_one_is_asked_for_again_without_context_and_then_named(bad):
    translator = Scripted(lambda request, _: bad if "one2" in request.text else request.text.upper())
    target, happened = await translate(translator, count=4)
    asked = [request for request in translator.asked if "one2" in request.text]
    assert [bool(request.context) for request in asked] == [True, False]
    assert numbers(happened) == [*range(6), *range(9, 12)]
    assert lacking(target, happened) == [(position(4), position(5.5))]


async def test_a_translator_that_never_answers_is_not_waited_for_longer_than_said():
    loop = asyncio.get_running_loop()
    began = loop.time()
    target, happened = await translate(Scripted(lambda _, __: 1e6), count=10, timeout_s=20, wait_s=60)
    assert 20 + 60 <= loop.time() - began < 20 + 62
    assert happened == [Outage(0)]
    assert lacking(target, happened) == [(0, position(19.5))]


async def test_a_text_that_breaks_the_translator_does_not_stop_the_others():
    broken = TranslatorUnavailable("status 500")
    translator = Scripted(lambda request, _: broken if "one0" in request.text else request.text.upper())
    target, happened = await translate(translator, count=40, wait_s=5)
    assert sorted(numbers(happened)) == list(range(3, 120))
    assert lacking(target, happened) == [(0, position(1.5))]


async def test_a_label_must_be_in_the_answer():
    translator = Scripted(lambda _, count: "ohne" if count == 1 else "mit [PHONE]")
    options = TargetOptions(language="de")
    target, happened = Target(options, translator, Backlog("de")), []
    words = [Word("call", 0, 100, 0.9), Word("[PHONE]", 100, 200, 0.9, redacted=True)]

    async def write(one: Happened) -> None:
        happened.append(one)

    target.add([NumberedWord(number, word) for number, word in enumerate(words)])
    target.finish()
    await target.run(write)
    assert [one.text for one in happened] == ["mit [PHONE]"]


async def test_an_hour_with_silences_of_ten_minutes_is_translated_as_it_is_said():
    options = TargetOptions(language="de")
    target, happened = Target(options, Scripted(lambda _, __: 1.0), Backlog("de")), []

    async def write(one: Happened) -> None:
        happened.append(one)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(target.run(write))
        for talk in range(6):  # 32 words without a mark, then nothing
            for at in range(32):
                said_at = 600 * talk + at / 2
                word = Word("word", position(said_at), position(said_at + 0.5), 0.9, language="en")
                await asyncio.sleep(0.5)
                target.add([NumberedWord(32 * talk + at, word, heard_at=asyncio.get_running_loop().time())])
            for silent_s in range(584):
                await asyncio.sleep(1)
                target.reach(None, position(600 * talk + 16 + silent_s))
        target.finish()
    assert numbers(happened) == list(range(6 * 32))
    assert all(isinstance(one, Translated) for one in happened)
    assert max(one.lag_s for one in happened) <= 3.5
    assert [one.unit.start for one in happened if one.unit.first % 32 == 30] == [
        position(600 * talk + 15) for talk in range(6)
    ]
