"""Corrects transcripts: reads what a person sends, writes it into the job's timeline, and makes documents of it.

A correction is one commit: the entry, the text and the words by which the archive finds the job. Documents of a
revision are made when somebody asks for them, so a kill leaves none half done.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.audio import position, seconds
from pipeline.corrections import (
    ChangeRefused,
    Correcting,
    JoinRequest,
    NameRequest,
    Request,
    RevertRefused,
    SpeakerRequest,
    TextRequest,
    by_people,
    corrected_chunks,
    redaction_of,
    reverted,
    without_texts,
)
from pipeline.documents.archive import Query, index_terms
from pipeline.documents.assemble import assemble
from pipeline.documents.edited import NotAligned, UnreadableDocument, changes_in, read_edited
from pipeline.documents.formats import word_event
from pipeline.documents.translated import output_format
from pipeline.text.options import TextSettings
from pipeline.timeline import Change, Correction, Words, unpack
from pipeline.transcription import Transcription
from pipeline.words import Transcript
from server.background import compute, total_bytes
from server.jobs.finishing import render_output
from server.model.errors import FieldError, Refused, invalid
from server.model.jobs import Job, State
from server.storage.sql.storage import Storage
from server.translation.translations import CorrectedTranslations

MAX_CHANGES = 1000
MAX_TEXT = 10_000  # signs of one change
MAX_NAME = 64

Make = Callable[[Transcription], tuple[Sequence[Change], int | None]]
"""Makes the changes of a correction, and the revision that they take back, of the timeline so far."""


@dataclass(frozen=True, slots=True)
class Corrections:
    """Writes and reads corrections."""

    storage: Storage
    text: TextSettings
    translations: CorrectedTranslations

    async def change(self, job: Job, body: Mapping[str, Any], *, by: str, expected: int | None) -> Correction | None:
        """Correct by a JSON body: `changes`, or `revert`. Raises Refused."""
        if "revert" in body:
            revision = body["revert"]
            if not isinstance(revision, int) or isinstance(revision, bool):
                raise invalid([FieldError("revert", "invalid_type", "must be the number of a revision")])
            return await self._correct(job, lambda past: (_reverted(past, revision), revision), by, expected)
        requests = parse_changes(body.get("changes"))

        def make(past: Transcription) -> tuple[Sequence[Change], None]:
            try:
                return self._state(past).changes_of(requests, self._redact(job, past)), None
            except ChangeRefused as error:
                field = FieldError("changes", "invalid_value", str(error), f"/changes/{error.index}")
                raise invalid([field]) from None

        return await self._correct(job, make, by, expected)

    async def apply_document(
        self, job: Job, data: bytes, kind: str, *, by: str, expected: int | None, force: bool
    ) -> Correction | None:
        """Correct by an edited document of *kind*. Returns None if it changes nothing. Raises Refused not_aligned."""

        def make(past: Transcription) -> tuple[Sequence[Change], None]:
            state = self._state(past)
            known = [*state.known_speakers(), *filter(None, state.names.values())]
            try:
                requests = changes_in(read_edited(data, kind, known), state)
            except UnreadableDocument as error:
                raise invalid([FieldError("document", "invalid_value", str(error))]) from None
            except NotAligned as error:
                if not force:
                    parts = [FieldError("document", "not_aligned", part) for part in error.parts]
                    message = f"Nothing was changed: {error}. Add ?force=true to take the rest."
                    raise Refused("not_aligned", message, errors=parts) from None
                requests = list(error.requests)
            return (state.changes_of(requests, self._redact(job, past)) if requests else ()), None

        return await self._correct(job, make, by, expected)

    async def _correct(self, job: Job, make: Make, by: str, expected: int | None) -> Correction | None:
        while True:
            current = await self.storage.jobs.get(job.id)
            if current is None:
                raise Refused("job_not_found", "There is no such job.")
            stored = await self.storage.timelines.entries(job.id)
            past = await compute(job.account, total_bytes(stored), _read, stored)
            if not past.said or not current.order.keeps_results or current.state in (State.FAILED, State.CANCELED):
                why = "its results are not kept" if not current.order.keeps_results else "it has no words"
                raise Refused("not_correctable", f"This job cannot be corrected: {why}.")
            revision = past.corrections[-1].revision if past.corrections else 0
            if expected is not None and expected != revision:
                raise Refused(
                    "revision_changed", f"This is revision {revision}; read what came since {expected} first."
                )
            changes, reverts = await compute(job.account, total_bytes(stored), make, past)
            if not changes:
                return None
            entry = Correction(revision + 1, by, tuple(changes), reverts)
            past.add(entry)
            text = None
            if current.state is State.COMPLETED:
                text = await compute(job.account, total_bytes(stored), _text, past, current)
            if await self.storage.jobs.correct(job.id, entry, text=text, terms=index_terms(text or "")):
                self.translations.start(current, changes)
                return entry

    def _state(self, past: Transcription) -> Correcting:
        return Correcting(past.said, past.labels, past.corrections)

    def _redact(self, job: Job, past: Transcription) -> Any:
        language = next(
            (state.language for state in past.place.channels.values() if state.language), job.order.language
        )
        return redaction_of(job.order.text, self.text, language)

    async def list_corrections(self, job: Job, *, after: int, limit: int) -> list[tuple[Correction, int]]:
        """Return corrections after revision *after*, each with when it was made."""
        return await self.storage.timelines.corrections(job.id, after=after, limit=limit)

    async def document(self, job: Job, name: str, revision: int) -> bytes:
        """Make the document *name* of a finished job as *revision* has it."""
        stored = await self.storage.timelines.entries(job.id)
        return await compute(job.account, total_bytes(stored), _document, stored, job, name, revision)

    async def words(self, job: Job) -> dict[str, Any]:
        """Return the words as they stand now, each with the number by which it is corrected, and the speakers."""
        stored = await self.storage.timelines.entries(job.id)
        return await compute(job.account, total_bytes(stored), _words, stored)

    async def matches(self, job: Job, query: Query) -> list[dict[str, Any]]:
        """Return where a finished job says what *query* asks for."""
        stored = await self.storage.timelines.entries(job.id)
        return await compute(job.account, total_bytes(stored), _matches, stored, query, job.revision)


def parse_changes(value: object) -> list[Request]:
    """Return the changes in a JSON value. Raises Refused that names every fault."""
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_CHANGES:
        raise invalid([FieldError("changes", "invalid_type", f"must be a list of 1 to {MAX_CHANGES} changes")])
    requests: list[Request] = []
    faults: list[FieldError] = []
    for index, change in enumerate(value):
        try:
            requests.append(_request(change))
        except ValueError as error:
            faults.append(FieldError("changes", "invalid_value", str(error), f"/changes/{index}"))
    if faults:
        raise invalid(faults)
    return requests


def _request(change: object) -> Request:
    match change:
        case {"first": int(first), "last": int(last), "text": str(text), **rest} if not rest:
            if len(text) > MAX_TEXT or any(not sign.isprintable() and not sign.isspace() for sign in text):
                raise ValueError(f"a text has at most {MAX_TEXT} characters, none of control")
            return TextRequest(first=first, last=last, text=text)
        case {"first": int(first), "last": int(last), "speaker": str(speaker), **rest} if not rest:
            return SpeakerRequest(first=first, last=last, speaker=_name(speaker))
        case {"speaker": str(speaker), "name": str(name), **rest} if not rest:
            return NameRequest(speaker=_name(speaker), name=_name(name) if name else "")
        case {"speaker": str(speaker), "into": str(into), **rest} if not rest:
            return JoinRequest(speaker=_name(speaker), into=_name(into))
    raise ValueError(
        "a change has first, last and text; first, last and speaker; speaker and name; or speaker and into"
    )


def _name(name: str) -> str:
    name = name.strip()
    if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
        raise ValueError(f"a speaker's name has 1 to {MAX_NAME} characters, none of control")
    return name


def _read(stored: Sequence[bytes]) -> Transcription:
    return Transcription.of(map(unpack, stored))


def _reverted(past: Transcription, revision: int) -> Sequence[Change]:
    try:
        return reverted(past.said, past.labels, past.corrections, revision)
    except RevertRefused as error:
        raise Refused("not_revertible", str(error)) from None


def transcript_of(past: Transcription, job: Job, revision: int | None = None, *, texts: bool = True) -> Transcript:
    """Return the transcript with the corrections up to *revision*; None: all. *texts*: also those of texts."""
    live = job.order.live is not None
    if live:
        settled = (state.settled for state in past.place.channels.values())
        duration = max([0 if job.duration_s is None else position(job.duration_s), *settled])
        chunks = past.chunks(duration=duration, channels=job.order.live_channels, language=job.order.language)
    else:
        chunks = past.chunks()
    end = max((chunk.end for chunk in chunks), default=0)
    kept = [one for one in past.corrections if revision is None or one.revision <= revision]
    state = Correcting(past.said, past.labels, kept if texts else without_texts(kept))
    model = job.model or ""
    made = assemble(corrected_chunks(chunks, state), duration=end, engine=job.engine or "", model_of=lambda _: model)
    return by_people(made, state)


def _text(past: Transcription, job: Job) -> str:
    return transcript_of(past, job).text


def _document(stored: Sequence[bytes], job: Job, name: str, revision: int) -> bytes:
    past = _read(stored)
    translated = output_format(name)[1] is not None  # translations follow their words by numbers
    return render_output(name, transcript_of(past, job, revision, texts=not translated), past, job)


def _words(stored: Sequence[bytes]) -> dict[str, Any]:
    past = _read(stored)
    state = Correcting(past.said, past.labels, past.corrections)
    shown = []
    for number, (_, channel) in enumerate(past.said):
        speaker = state.speaker_at(number)
        place: dict[str, Any] = {"index": number}
        if (last := state.ranges.get(number, number)) != number:
            place["last"] = last
        if channel is not None:
            place["channel"] = channel
        if speaker is not None:
            place |= {"speaker": state.label_of(speaker), "name": state.name_of(speaker)}
        words = [{**place, **word_event(word)} for word in state.words_at(number)]
        if not words and number in state.ranges:  # removed: its place can still be corrected
            words = [{**place, "word": "", "start": seconds(past.said[number][0].start), "removed": True}]
        shown += words
    names = {label: state.name_of(label) for label in map(state.label_of, state.known_speakers())}
    revision = past.corrections[-1].revision if past.corrections else 0
    return {"revision": revision, "speakers": names, "words": shown}


def _matches(stored: Sequence[bytes], query: Query, revision: int) -> list[dict[str, Any]]:
    if not revision:  # words as they were recognised need no fold, which takes long for long recordings
        entries = (entry for entry in map(unpack, stored) if isinstance(entry, Words))
        return query.matches(one.word for entry in entries for one in entry.words)
    past = _read(stored)
    state = Correcting(past.said, past.labels, past.corrections)
    words = [word for number in range(len(past.said)) for word in state.words_at(number)]
    return query.matches(sorted(words, key=lambda word: word.start))
