"""Makes the timelines of a database of version 0.1, which stored what was said twice: as events and in chunks.

Each event keeps its number, so that readers come back with the last one that they have, and each word has the exact
times and scores that its chunk had. Words without a chunk were heard by a session that died: they have those of their
event, in milliseconds.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from pipeline.audio import position
from pipeline.documents.archive import index_terms
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
    StoredTurn,
    StoredWord,
    TurnEnd,
    Words,
    pack,
    tag_of,
)
from server.model.jobs import TERMINAL_EVENTS
from server.storage.sql.database import Transaction
from server.storage.sql.listing import index_words
from server.storage.sql.rows import LIVE, SqlRow, order_of


def take_over(tx: Transaction) -> None:
    """Fill the table `timeline` from the tables `events` and `chunks`."""
    for job in tx.all("SELECT id, account, environment, class, options, last_seq, kept, text FROM jobs ORDER BY id"):
        events = tx.all("SELECT seq, at, type, body FROM events WHERE stream = ? ORDER BY seq", (job["id"],))
        chunks = [orjson.loads(row["body"]) for row in _chunks(tx, job["id"])]
        order = order_of(job["options"])
        live = job["class"] == LIVE
        made = list(_Old(chunks, by_voice=live and order.diarize, words=live or order.word_timestamps).entries(events))
        rows = [
            (job["id"], seq, number, at, tag_of(type(entry)), pack(entry))
            for number, (seq, at, entry) in enumerate(made, 1)
        ]
        tx.run_many("INSERT INTO timeline (job, seq, number, at, kind, body) VALUES (?, ?, ?, ?, ?, ?)", rows)
        tx.run("UPDATE jobs SET last_entry = ? WHERE id = ?", (len(rows), job["id"]))
        if job["text"] and job["kept"]:
            where = {"account": job["account"], "environment": job["environment"], "job_id": job["id"]}
            index_words(tx, **where, terms=index_terms(job["text"]))


def _chunks(tx: Transaction, job_id: str) -> Sequence[SqlRow]:
    return tx.all("SELECT body FROM chunks WHERE job = ? ORDER BY idx", (job_id,))


@dataclass(slots=True)
class _Old:
    """The chunks of one job, which are used up while its events are read."""

    chunks: Sequence[Mapping[str, Any]]
    by_voice: bool  # the labels of speakers are those of voices
    words: bool  # the events have words
    _words: dict[int | None, deque[StoredWord]] = field(default_factory=dict)  # by channel, those in chunks
    _segments: dict[int | None, deque[Mapping[str, Any]]] = field(default_factory=dict)
    _ends: dict[int | None, int] = field(default_factory=dict)  # of the last word
    _marks: deque[tuple[int, Mapping[str, Any]]] = field(default_factory=deque)  # each with the segments up to it
    _ended: int = 0  # segments
    _numbered: int = 0  # words

    def __post_init__(self) -> None:
        count = 0
        for chunk in self.chunks:
            channel = chunk.get("channel")
            for segment in chunk["segments"]:
                self._segments.setdefault(channel, deque()).append(segment)
                self._words.setdefault(channel, deque()).extend(map(_word_of_chunk, segment["words"]))
            count += len(chunk["segments"])
            self._marks.append((count, chunk))

    def entries(self, events: Sequence[SqlRow]) -> Iterator[tuple[int, int, Entry]]:
        """Yield each entry with the number of the last event up to it, and its time."""
        seq = at = 0
        waiting: tuple[int, int, Words] | None = None  # words that were committed together
        for event in events:
            body = orjson.loads(event["body"])
            if event["type"] == "word":
                words = self._said(body)
                if waiting is not None and (joined := _joined(waiting[2], words)) is not None:
                    words = joined
                elif waiting is not None:
                    yield waiting
                waiting = event["seq"], event["at"], words
                continue
            if waiting is not None:
                yield waiting
                seq, at, _ = waiting
                waiting = None
            if event["type"] == "segment" and not self.words:
                yield seq, event["at"], self._hidden(body)
            seq, at = event["seq"], event["at"]
            yield seq, at, self._other(event["type"], body)
            yield from ((seq, at, entry) for entry in self._reached())
        if waiting is not None:
            yield waiting
            seq, at, _ = waiting
        yield from ((seq, at, entry) for entry in self._reached())

    def _said(self, body: Mapping[str, Any]) -> Words:
        channel, kept = body.get("channel"), self._words.get(body.get("channel"))
        word = kept.popleft() if kept else _word_of_event(body, self._ends.get(channel, 0))
        self._ends[channel] = word.end
        label = body.get("speaker", "") if self.by_voice else None
        stored = StoredWord(
            word.text, word.start, word.end, word.probability, body.get("lag_ms"), label, word.language, word.spaced,
            word.heard, word.redacted,
        )  # fmt: skip
        emitted_at = _milliseconds(body["emitted_at"]) if "emitted_at" in body else None
        self._numbered = body["index"] + 1
        return Words(body["index"], body["segment"], (stored,), channel, emitted_at)

    def _hidden(self, body: Mapping[str, Any]) -> Words:
        """The words of a file's segment, of which no event tells: a canceled file has only its text."""
        channel, kept = body.get("channel"), self._segments.get(body.get("channel"))
        if kept:
            words = tuple(self._words[channel].popleft() for _ in kept[0]["words"])
        else:
            words = (_word_of_event({**body, "word": body["text"], "probability": 0.0}, 0),)
        count = len(words)
        self._numbered += count
        return Words(self._numbered - count, body["id"], words, channel, shown=False)

    def _reached(self) -> Iterator[Entry]:
        """Yield the marks of the chunks whose segments have ended."""
        while self._marks and self._marks[0][0] <= self._ended:
            _, chunk = self._marks.popleft()
            yield DecidedUpTo(
                chunk["end"],
                chunk.get("channel"),
                chunk["jobs_done"],
                chunk["language"],
                chunk["language_probability"],
                tuple(chunk["notes"]),
            )
            if chunk.get("turns") is not None:
                yield SpeakerTurns(tuple(StoredTurn(*turn) for turn in chunk["turns"]))

    def _other(self, kind: str, body: Mapping[str, Any]) -> Entry:  # noqa: C901  a case for each event
        channel = body.get("channel")
        at = position(body["at"]) if "at" in body else 0
        match kind:
            case "segment":
                return self._segment(body)
            case "language":
                return LanguageFound(body["language"], body["probability"], channel)
            case "speakers.revised":
                runs = tuple(StoredRun(run["first"], run["last"], run["speaker"]) for run in body["words"])
                return SpeakersRevised(runs, body["final"])
            case "turn.ended":
                return TurnEnd(at, body["probability"], channel)
            case "finalized":
                return FinalizedUpTo(at, channel)
            case "speech.started":
                return SpeechStart(at, channel)
            case "speech.ended":
                return SpeechEnd(at, channel)
            case "warning":
                return Notice(body["code"], body["message"], channel)
            case "job.status":
                return StateChange(body["status"], body["progress"])
            case "job.progress":
                return Progress(body["progress"])
            case _ if kind in TERMINAL_EVENTS:
                return JobEnd(kind.removeprefix("job."))
        raise ValueError(f"an event of the type {kind!r} is in no version of this program")

    def _segment(self, body: Mapping[str, Any]) -> SegmentEnd:
        channel = body.get("channel")
        kept = self._segments.get(channel)
        scores: Mapping[str, Any] = kept.popleft() if kept else body
        self._ended += 1
        return SegmentEnd(
            body["id"],
            position(body["start"]),
            position(body["end"]),
            body["text"],
            scores["avg_logprob"],
            scores["no_speech_prob"],
            channel,
            body.get("language"),
            scores.get("language_probability"),
            body.get("speaker", "") if self.by_voice else None,
            body.get("forced"),
        )


def _word_of_chunk(values: Sequence[Any]) -> StoredWord:
    text, start, end, probability, spaced, *more = values
    heard, redacted, language = more or (None, False, None)
    return StoredWord(text, start, end, probability, spaced=spaced, heard=heard, redacted=redacted, language=language)


def _word_of_event(body: Mapping[str, Any], least: int) -> StoredWord:
    """A word of an event, whose times are rounded to milliseconds, but not before those of the word before it."""
    start, end = (max(position(body[name]), least) for name in ("start", "end"))
    spaced, heard, redacted = body.get("spaced", True), body.get("heard"), body.get("redacted", False)
    return StoredWord(
        body["word"], start, end, body["probability"], spaced=spaced, heard=heard, redacted=redacted,
        language=body.get("language"),
    )  # fmt: skip


def _joined(before: Words, words: Words) -> Words | None:
    """The words of both, if they were committed together."""
    same = (before.segment, before.channel, before.emitted_at) == (words.segment, words.channel, words.emitted_at)
    if not same or before.first + len(before.words) != words.first:
        return None
    return Words(before.first, before.segment, before.words + words.words, before.channel, before.emitted_at)


def _milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
