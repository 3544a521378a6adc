"""Tests of live sessions whose text is a translation: words are shown at once, and final at the end of their turn."""

from collections.abc import Callable

import pytest

from pipeline.audio import position
from pipeline.events import Partial, SegmentClosed, SpeechEnded, WordsCommitted
from pipeline.live_stream import LiveStream
from pipeline.recognition.engine import TRANSLATE, DecodeRequest, RecognitionResult
from pipeline.recognition.stream import StreamCore
from pipeline.recognition.stream_options import StreamOptions
from pipeline.text.options import TextOptions
from pipeline.text.rewriting import TextRewriter
from pipeline.text.stage import TextStage
from pipeline.words import Word
from tests.pipeline.live_streams import Voice, in_real_time, run_whole

pytestmark = pytest.mark.virtual_time

TURNS = ((1.0, 4.0), (6.0, 9.0))  # seconds in which somebody speaks
SPEECH = tuple(Word("x", position(start), position(end), 1.0) for start, end in TURNS)
SENTENCE = ["I", "have", "seen", "five", "of", "the", "red", "houses"]


class Translator:
    """Answers with more words the more it hears, in an order that changes each time; the last answer is SENTENCE."""

    def __init__(self) -> None:
        self.requests: list[DecodeRequest] = []

    async def recognise(
        self, request: DecodeRequest, *, tenant: str, newer: Callable[[], DecodeRequest | None] | None = None
    ) -> RecognitionResult:
        assert (tenant, newer is None) == ("acct", False)
        self.requests.append(request)
        end = request.start + len(request.samples)
        [start, stop] = next(span for span in reversed(TURNS) if position(span[0]) < end)
        heard = min(end, position(stop)) - position(start)
        count = min(len(SENTENCE), 1 + heard * len(SENTENCE) // position(stop - start))
        said = SENTENCE if count == len(SENTENCE) else [*SENTENCE[:count]][:: -1 if count % 2 else 1]
        each = position((stop - start) / len(SENTENCE))
        places = [position(start) + at * each for at in range(len(said))]
        words = tuple(
            Word(text, at, at + each, 0.95, language="es") for text, at in zip(said, places, strict=True) if at < end
        )
        return RecognitionResult(words, "es", 0.9, -0.2, 0.0, detected=(position(start), end))


async def test_translated_words_are_shown_while_a_turn_lasts_and_final_at_its_end():
    translator = Translator()
    options = StreamOptions(task=TRANSLATE)
    core = StreamCore(options)
    numerals = TextRewriter(TextStage(TextOptions(numerals=True), language="en"), one_language=True)
    session = LiveStream(core, vad=Voice(SPEECH), recogniser=translator, tenant="acct", text=numerals)
    happened = [one.event for one in await run_whole(session, in_real_time(position(11)))]
    partials = [event.text for event in happened if isinstance(event, Partial) and event.words]
    assert len(partials) > 3, "readers see something of each turn before its end"
    committed = [event for event in happened if isinstance(event, WordsCommitted)]
    ends = [at for at, event in enumerate(happened) if isinstance(event, SpeechEnded)]
    assert all(happened.index(event) > end for event, end in zip(committed, ends, strict=True))
    closed = [event.segment for event in happened if isinstance(event, SegmentClosed)]
    assert [segment.text for segment in closed] == ["I have seen 5 of the red houses"] * 2, "English numerals"
    assert [segment.language for segment in closed] == ["es", "es"], "the language is the one that is spoken"
    assert {request.task for request in translator.requests} == {TRANSLATE}
    assert all(request.final for request in translator.requests)
    starts = [request.start for request in translator.requests if request.start > position(4)]
    assert min(starts) > position(4), "no window has an earlier turn, whose translation could not be told apart"
