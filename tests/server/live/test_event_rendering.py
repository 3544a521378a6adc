"""Tests of event_rendering.py with speakers: a segment has the one that most of its words have when it closes."""

import orjson

from pipeline.audio import RATE
from pipeline.events import SegmentClosed, WordsCommitted
from pipeline.speakers.live import LiveSpeakers
from pipeline.speakers.options import SpeakerOptions
from pipeline.timed_events import TimedEvent
from pipeline.words import Segment, Word
from server.live.event_rendering import EventRenderer
from tests.pipeline.conversations import conversation, models


def test_a_segment_has_the_speaker_to_whom_its_words_were_corrected():
    talk, (_, (_, start, end)) = conversation("flite/rms_0.flac", "flite/slt_1.flac")
    speakers = LiveSpeakers(models(), SpeakerOptions(), {None: 0})
    renderer = EventRenderer(speakers)
    begin, stop = round(start * RATE), round(end * RATE)
    said = [Word("w", at, at + RATE // 2, 1.0) for at in range(begin, stop - RATE // 2, RATE // 2)]
    first, heard = [], 0
    for number, word in enumerate(said):
        speakers.listen({None: talk[heard : word.end]})
        heard = word.end
        batch = renderer.batch([TimedEvent(WordsCommitted((word,), number, 0), 0.0, (0.0,))])
        first += [orjson.loads(event.body)["speaker"] for event in batch.events]
    speakers.listen({None: talk[heard:]})
    assert first.count("S1") > len(first) / 2, "the second voice was not known yet"
    (closed,) = renderer.batch([TimedEvent(SegmentClosed(0, Segment(tuple(said), -0.1, 0.1)), 0.0)]).events
    assert orjson.loads(closed.body)["speaker"] == "S2"
