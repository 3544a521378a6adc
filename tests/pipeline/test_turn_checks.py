"""Tests of turns that end by meaning: whole sessions, and the model on people."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from itertools import chain, repeat
from typing import Any

import numpy as np
import pytest
import soundfile

from pipeline.audio import RATE, WINDOW, Samples, position, seconds
from pipeline.errors import EngineFailed
from pipeline.events import Finalized, SegmentClosed, TimedEvent, TurnEnded
from pipeline.live_stream import LiveStream
from pipeline.recognition.stream import StreamCore
from pipeline.recognition.stream_options import BEGINNING, StreamOptions, StreamStart, with_turn_checks
from pipeline.recognition.turns import EAGERNESS, LONGEST_CHECK, TurnEndModel
from pipeline.text.options import TextOptions
from pipeline.text.rewriting import TextRewriter
from pipeline.text.stage import TextStage
from pipeline.weights import TURN_ENDS
from pipeline.words import Word
from tests.pipeline.live_streams import ScriptedRecogniser, Voice, committed_words, in_real_time, run_whole
from tests.pipeline.scripted_streams import timed_words
from tests.pipeline.sounds import SPEECH

pytestmark = pytest.mark.virtual_time

TWO_PHRASES = timed_words(("we", 0.512, 0.8), ("leave", 0.8, 1.28), ("now", 2.496, 2.88))
LENGTH_S = 12.0
installed = pytest.mark.skipif(not TURN_ENDS.installed, reason="the weights of turn ends are not installed")


class ScriptedTurnEnds:
    """Finds these probabilities, one after the other and the last for ever; None fails. It takes *takes_s*."""

    def __init__(self, *probabilities: float | None, takes_s: float = 0.05) -> None:
        self._probabilities = chain(probabilities, repeat(probabilities[-1]))
        self._takes_s = takes_s
        self.asked: list[Samples] = []

    async def probability(self, turn: Samples) -> float:
        self.asked.append(turn)
        await asyncio.sleep(self._takes_s)
        probability = next(self._probabilities)
        if probability is None:
            raise EngineFailed("the model broke")
        return probability


def semantic_options(eagerness: str = "auto") -> StreamOptions:
    return with_turn_checks(StreamOptions(), EAGERNESS[eagerness])


async def events_of(
    ends: ScriptedTurnEnds,
    options: StreamOptions,
    words: tuple[Word, ...] = TWO_PHRASES,
    feed: Callable[[LiveStream], Coroutine[Any, Any, None]] | None = None,
    *,
    text: TextRewriter | None = None,
    start: StreamStart = BEGINNING,
) -> list[TimedEvent]:
    """Return what happens in a session in which *words* are said within LENGTH_S."""
    core, recogniser = StreamCore(options, start), ScriptedRecogniser(words, takes=(0.15,))
    session = LiveStream(
        core, vad=Voice(words, start.at), recogniser=recogniser, tenant="acct", text=text, turn_ends=ends
    )
    return await run_whole(session, feed or in_real_time(position(LENGTH_S)))


def turns(happened: Iterable[TimedEvent]) -> list[tuple[float, float | None]]:
    """Return the ends of turns, in tenths of a second, and their probabilities."""
    ends = [one.event for one in happened if isinstance(one.event, TurnEnded)]
    return [(round(seconds(end.at), 1), end.probability) for end in ends]


async def test_a_finished_sentence_ends_its_turn_a_third_of_a_second_after_its_last_word():
    happened = await events_of(ScriptedTurnEnds(0.97), semantic_options())
    assert turns(happened) == [(1.3, 0.97), (2.9, 0.97)]
    began_s = happened[0].at_s - 0.6  # the start of speech is told after three windows
    [first, _] = [one for one in happened if isinstance(one.event, TurnEnded)]
    assert first.at_s - began_s - 1.28 < 0.4
    kinds = [type(one.event) for one in happened]
    assert kinds.index(SegmentClosed) < kinds.index(TurnEnded)


async def test_a_pause_in_a_sentence_ends_nothing_and_a_long_one_ends_the_turn_all_the_same():
    happened = await events_of(ScriptedTurnEnds(0.1, 0.2, 0.3), semantic_options("high"))
    assert turns(happened) == [(2.9, 0.3)]
    [segment] = [one.event.segment for one in happened if isinstance(one.event, SegmentClosed)]
    assert len(segment.words) == 3


async def test_a_pause_is_looked_at_again_when_it_is_longer_and_then_more_is_asked():
    assert [at for at, _ in turns(await events_of(ScriptedTurnEnds(0.5, 0.97), semantic_options()))] == [1.3, 2.9]
    assert [at for at, _ in turns(await events_of(ScriptedTurnEnds(0.5, 0.7, 0.7), semantic_options()))] == [2.9]


async def test_an_answer_that_comes_when_the_speaker_goes_on_ends_nothing():
    assert turns(await events_of(ScriptedTurnEnds(0.99, takes_s=1.4), semantic_options("high")))[0][0] == 2.9


async def test_a_model_that_fails_leaves_the_ends_to_silence():
    assert turns(await events_of(ScriptedTurnEnds(None), semantic_options("high"))) == [(2.9, None)]


async def test_finalize_ends_the_open_turn():
    async def feed(session: LiveStream) -> None:
        await in_real_time(position(1.6))(session)
        session.finalize()
        await in_real_time(position(1))(session)

    happened = await events_of(
        ScriptedTurnEnds(0.1), semantic_options("low"), timed_words(("we", 0.512, 0.8), ("leave", 0.8, 1.28)), feed
    )
    assert turns(happened) == [(1.3, 0.1)]
    kinds = [type(one.event) for one in happened]
    assert kinds.index(TurnEnded) < kinds.index(Finalized)


async def test_a_turn_has_all_its_words_before_its_end_though_a_number_was_held():
    words = timed_words(("in", 0.5, 0.8), ("twenty", 0.8, 1.3), ("five", 1.28, 1.6))
    stage = TextStage(TextOptions(numerals=True), language="en")
    happened = await events_of(ScriptedTurnEnds(0.97), semantic_options(), words, text=TextRewriter(stage))
    assert [word.text for word in committed_words(happened)] == ["in", "25"]
    assert isinstance(happened[-1].event, TurnEnded)


async def test_a_sound_without_words_is_no_turn_and_silence_alone_asks_nothing():
    ends = ScriptedTurnEnds(0.97)
    noise = Voice(timed_words(("noise", 0.5, 1.5)))
    session = LiveStream(
        StreamCore(semantic_options()), vad=noise, recogniser=ScriptedRecogniser(()), tenant="acct", turn_ends=ends
    )
    assert turns(await run_whole(session, in_real_time(position(3)))) == []
    assert len(ends.asked) == 1
    quiet = ScriptedTurnEnds(0.97)
    assert turns(await events_of(quiet, StreamOptions())) == []
    assert quiet.asked == []


async def test_a_turn_that_was_open_before_a_restart_ends_though_nobody_goes_on():
    start = StreamStart(at=10 * WINDOW, settled=10 * WINDOW, open_turn=position(0.3))
    words = timed_words(("later", 4.8, 5.376))
    assert turns(await events_of(ScriptedTurnEnds(0.97), semantic_options("high"), words, start=start)) == [
        (0.3, None),
        (5.4, 0.97),
    ]


async def test_a_check_has_the_end_of_the_turn_and_no_more_than_the_model_takes():
    words = timed_words(*((f"w{n}", n / 2, n / 2 + 0.5) for n in range(1, 21)))
    ends = ScriptedTurnEnds(0.97)
    await events_of(ends, semantic_options(), words)
    [asked] = ends.asked
    assert len(asked) == LONGEST_CHECK


async def test_a_turn_that_follows_closely_is_looked_at_with_what_was_said_before_and_without_the_silence():
    ends = ScriptedTurnEnds(0.97)
    await events_of(ends, semantic_options())
    first, both = (len(asked) / RATE for asked in ends.asked)
    assert both - first == pytest.approx(0.3 + 0.4, abs=0.1)  # a silence and "now"
    ends = ScriptedTurnEnds(0.97)
    await events_of(ends, semantic_options(), (*TWO_PHRASES[:2], *timed_words(("much", 5.5, 5.9))))
    assert len(ends.asked[1]) / RATE == pytest.approx(0.4 + 0.1, abs=0.1)  # too much silence was before it


@installed
def test_the_model_knows_finished_sentences_of_people_from_begun_ones():
    assert not TURN_ENDS.damaged
    model = TurnEndModel()
    finished, begun = (
        [model(turn_of(name, until)) for name, until in clips]
        for clips in (
            [("austen_0870", None), ("austen_0920", None), ("LJ001-0013", None)],
            [("jfk", 3.9), ("austen_0880", None), ("LJ001-0004", None)],
        )
    )
    assert min(finished) > 0.9
    assert max(begun) < 0.3


def turn_of(name: str, until_s: float | None) -> Samples:
    """Return the clip up to a moment, and the start of a pause."""
    samples = soundfile.read(SPEECH / "human" / f"{name}.flac", dtype="float32")[0]
    spoken_part = samples if until_s is None else samples[: round(until_s * RATE)]
    return np.concatenate([spoken_part, np.zeros(RATE // 10, np.float32)])
