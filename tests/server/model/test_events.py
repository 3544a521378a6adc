"""What readers get of each entry."""

import orjson
import pytest

from pipeline.timeline import (
    DecidedUpTo,
    Entry,
    FinalizedUpTo,
    JobEnd,
    LanguageFound,
    Notice,
    Progress,
    SegmentEnd,
    SpeakersRevised,
    SpeakerTurns,
    SpeechEnd,
    SpeechStart,
    StateChange,
    StoredRun,
    StoredWord,
    TurnEnd,
    Words,
)
from server.model.events import render

AT_MS = 1_795_176_000_250
GUTEN, DAY = StoredWord("Guten", 1600, 8000, 0.9, 500), StoredWord("日", 8000, 16_000, 0.51239, 432, spaced=False)


def shown(entry: Entry) -> list[tuple[str, dict[str, object]]]:
    return [(event.type, orjson.loads(event.body)) for event in render(entry)]


def test_live_words_are_reported_with_their_place_their_times_and_their_lag():
    assert shown(Words(4, 2, (GUTEN, DAY), emitted_at=AT_MS)) == [
        ("word", {"index": 4, "segment": 2, "word": "Guten", "start": 0.1, "end": 0.5, "probability": 0.9,
                  "emitted_at": "2026-11-20T12:00:00.250Z", "lag_ms": 500}),
        ("word", {"index": 5, "segment": 2, "word": "日", "start": 0.5, "end": 1.0, "probability": 0.5124,
                  "spaced": False, "emitted_at": "2026-11-20T12:00:00.250Z", "lag_ms": 432}),
    ]  # fmt: skip


def test_words_of_a_file_have_no_lag_and_none_are_shown_unless_ordered():
    word = StoredWord("so", 0, 8000, 0.9)
    body = {"index": 0, "segment": 0, "word": "so", "start": 0.0, "end": 0.5, "probability": 0.9}
    assert shown(Words(0, 0, (word,))) == [("word", body)]
    assert shown(Words(0, 0, (word,), shown=False)) == []


@pytest.mark.parametrize(
    ("channel", "label", "members"),
    [
        (None, None, {}),
        (None, "S2", {"speaker": "S2"}),
        (None, "", {}),
        (1, None, {"channel": 1, "speaker": "S2"}),
        (1, "Anna", {"channel": 1, "speaker": "Anna"}),
        (1, "", {"channel": 1}),
    ],
)
def test_a_separate_channel_is_a_speaker_unless_voices_are_told_apart(channel, label, members):
    (word,) = shown(Words(0, 0, (StoredWord("so", 0, 8000, 0.9, speaker=label),), channel))
    (segment,) = shown(SegmentEnd(0, 0, 8000, "so", -0.1, 0.0, channel, speaker=label))
    for _, body in (word, segment):
        assert {name: body[name] for name in ("channel", "speaker") if name in body} == members


def test_a_segment_is_forced_or_not_only_in_sessions():
    ended = SegmentEnd(3, 1600, 16_000, "Guten日", -0.123456, 0.25, language="de", forced=True)
    body = {"id": 3, "start": 0.1, "end": 1.0, "text": "Guten日", "avg_logprob": -0.1235, "no_speech_prob": 0.25,
            "language": "de"}  # fmt: skip
    assert shown(ended) == [("segment", {**body, "forced": True})]
    assert shown(SegmentEnd(3, 1600, 16_000, "Guten日", -0.123456, 0.25, language="de")) == [("segment", body)]


@pytest.mark.parametrize(
    ("entry", "kind", "body"),
    [
        (LanguageFound("de", 0.98765), "language", {"language": "de", "probability": 0.9877}),
        (Notice("late", "the model is slow", 1), "warning", {"code": "late", "message": "the model is slow",
                                                             "channel": 1}),
        (SpeechStart(800), "speech.started", {"at": 0.05}),
        (SpeechEnd(1600, 0), "speech.ended", {"at": 0.1, "channel": 0}),
        (TurnEnd(1600, 0.87654), "turn.ended", {"at": 0.1, "probability": 0.8765}),
        (TurnEnd(1600), "turn.ended", {"at": 0.1, "probability": None}),
        (FinalizedUpTo(1600), "finalized", {"at": 0.1}),
        (SpeakersRevised((StoredRun(0, 3, "S2"),), final=True), "speakers.revised",
         {"words": [{"first": 0, "last": 3, "speaker": "S2"}], "final": True}),
        (StateChange("queued"), "job.status", {"status": "queued", "progress": 0.0}),
        (Progress(0.25), "job.progress", {"progress": 0.25}),
        (JobEnd("completed"), "job.completed", {"type": "job.completed"}),
    ],
)  # fmt: skip
def test_other_entries_are_one_event_each(entry, kind, body):
    assert shown(entry) == [(kind, body)]


@pytest.mark.parametrize("entry", [DecidedUpTo(16_000, jobs_done=3), SpeakerTurns(())])
def test_marks_and_turns_are_for_the_server_alone(entry):
    assert render(entry) == []
