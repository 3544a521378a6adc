"""scribewire transcribe: transcribes recordings, in this process or by a server.

A single recording with a single format is printed to standard output. Everything else becomes files. All messages go to
standard error. Exit status: 0 all is done, 1 some failed, 2 a wrong option or file, 130 Ctrl-C.
"""

import argparse
import asyncio
import hashlib
import shutil
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias

import httpx
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from pipeline.audio import seconds
from pipeline.batch import BatchOptions
from pipeline.documents.assemble import assemble
from pipeline.documents.formats import OUTPUT_FORMATS, Heading
from pipeline.documents.translated import output_format, translated_outputs
from pipeline.errors import PipelineError, UnusableReference
from pipeline.ingest.input_formats import DecodeLimits
from pipeline.languages import ENGLISH, language_named
from pipeline.speakers.options import MOST_VOICES, SpeakerOptions
from server.client import Client, ServiceError
from server.clock import iso, now_ms
from server.commands.connection import Connection, add_arguments, connection, reaching, sentence
from server.commands.recordings import (
    PIPE,
    Index,
    Recording,
    Row,
    Table,
    apart,
    check_writable,
    find_recordings,
    write_whole,
)
from server.commands.request_options import Given, add_options, comma_list, members_given, parse_with, without
from server.config import Config, ConfigError, FileProblem
from server.engines import ServedModels, open_engines
from server.logs import configure
from server.model.ids import CHANCE_BYTES, Prefix, new_id
from server.model.orders import Order
from server.parsing import declared
from server.parsing.orders import parse_order

MAX_AT_ONCE = 16  # a server lets an account follow 20 files at a time
CANCEL_S = 5.0  # how long Ctrl-C waits for a server
NO_SPEECH = "Nobody speaks in it, as far as the model can tell."
FAILURES = (PipelineError, ServiceError, httpx.TransportError, OSError)
"""What may fail for one recording while the others go on."""

ADVICE = {
    "invalid_audio": "Copy or record it again.",
    "empty_file": "Copy or record it again.",
    "quota_exceeded": "`--key` takes a key with a larger plan.",
}
"""What to do about a failure, by its code."""

Show: TypeAlias = Callable[[float], None]
"""Tells the share of a recording that is done, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Transcribed:
    """What became of one recording: the content of a file for each format."""

    files: dict[str, bytes]
    seconds: float
    language: str | None
    model: str | None
    text: str
    warnings: tuple[str, ...]


def add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "transcribe",
        help="transcribe recordings, one or many",
        epilog="What is already done, by content and options, is skipped, so an interrupted run continues. "
        "Exit status: 0 all is done, 1 some failed, 2 a wrong option or file.",
    )
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="FILE|FOLDER|PATTERN|URL",
        help="recordings; a folder with all that is in it; a pattern such as '*.mp3'; - for standard input",
    )
    parser.add_argument("--formats", help=f"comma list of {', '.join(OUTPUT_FORMATS)} (default: txt, or that of -o)")
    parser.add_argument("--words", action="store_true", help="list every word with its times in the JSON")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write NAME.json, NAME.srt, ... into this folder (default: the current one, but a single recording with a "
        "single format is printed)",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the only recording into this file")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write a table with a line for each recording")
    parser.add_argument("--force", action="store_true", help="also do what is done already, and overwrite files")
    parser.add_argument("--jobs", type=int, metavar="N", help="recordings at the same time (default: WORKERS)")
    add_arguments(parser, meaning="address of a server (default: this process transcribes)")
    add_options(parser, declared.FILE_MEMBERS)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace, config: Config) -> int:
    configure(style=config.log_format, level="warning" if config.log_level == "info" else config.log_level)
    formats = _formats(given)
    fields = members_given(given, declared.FILE_MEMBERS) | ({"word_timestamps": True} if given.words else {})
    order = parse_with(parse_order, fields, sandbox=False, has_file=True).order
    if order.translate_to and given.server is None:
        raise ConfigError("--translate-to needs --server: translations are made there")
    outputs = [*formats, *translated_outputs(formats, order.translate_to)]
    recordings = find_recordings(given.sources)
    if given.jobs is not None and not 1 <= given.jobs <= MAX_AT_ONCE:
        raise ConfigError(f"--jobs must be from 1 to {MAX_AT_ONCE}, got {given.jobs}")
    at_once = min(given.jobs or max(1, config.workers), len(recordings))
    work = _work_of(given, recordings, outputs, fields)
    if given.server is None:
        return asyncio.run(_run(work, _Here(formats, fields, config, at_once), at_once))
    reached = connection(given, config)
    with reaching(reached.address):
        return asyncio.run(_run(work, _There(formats, outputs, fields, reached, force=given.force), at_once))


def _formats(given: argparse.Namespace) -> list[str]:
    """The formats that are wanted. Raises ConfigError."""
    if given.formats is not None:
        formats = comma_list(given.formats, [*OUTPUT_FORMATS], "--formats")
    else:
        of_file = "" if given.output is None else given.output.suffix.removeprefix(".").lower()
        formats = [of_file if of_file in OUTPUT_FORMATS else "txt"]
    if given.output is not None and (len(formats) > 1 or given.out is not None):
        raise ConfigError("-o takes one format, and no --out; for several formats use --out DIR")
    return formats


# --- the recordings, one after the other and several at once ---------------------------------------------------------


@dataclass(slots=True)
class _Work:
    """What is to be done. *targets* has the file for each format of each recording; {}: standard output."""

    recordings: list[Recording]
    targets: dict[str, dict[str, Path]]
    index: Index | None  # None: nothing is noted or skipped
    table: Table | None
    force: bool


def _work_of(given: argparse.Namespace, recordings: list[Recording], formats: Sequence[str], fields: Given) -> _Work:
    """Decide which files will be written. Raises ConfigError if one cannot, or must not, be."""
    alone = len(recordings) == 1 and not any(map(Path.is_dir, map(Path, given.sources)))
    index, targets = None, {}
    if given.output is not None:
        if not alone:
            raise ConfigError(f"-o takes one recording, got {len(recordings)}; for several use --out DIR")
        check_writable(given.output.absolute().parent, "-o")
        targets = {recordings[0].source: {formats[0]: given.output}}
    elif not alone or given.out is not None or len(formats) > 1:
        folder = given.out or Path()
        check_writable(folder, "--out")
        index = Index.read(folder, {**fields, "formats": [*formats]})
        recordings = apart(recordings, index)
        targets = {one.source: _targets(folder, one, formats) for one in recordings}
    for one in recordings:
        for target in targets.get(one.source, {}).values():
            if any(other.is_same(target) for other in recordings):
                raise FileProblem(target, "this is a recording, which is not written over; choose another --out")
            if index is not None and target.exists() and not given.force and not index.knows(target):
                raise FileProblem(
                    target, "it is there already, and this command did not write it; --force overwrites it"
                )
    table = None if given.csv is None else Table(given.csv, [one.source for one in recordings])
    return _Work(recordings, targets, index, table, given.force)


def _targets(folder: Path, recording: Recording, formats: Sequence[str]) -> dict[str, Path]:
    named = folder / recording.base
    return {name: named.with_name(f"{named.name}.{extension(name)}") for name in formats}


def extension(name: str) -> str:
    """The extension of an output's file: srt, and de.srt for the translation srt.de."""
    kind, target = output_format(name)
    return kind.extension if target is None else f"{target}.{kind.extension}"


async def _run(work: _Work, transcriber: "_Transcriber", at_once: int) -> int:
    """Work off the recordings, and return the exit status."""
    waiting = iter(work.recordings)
    report = _Report(len(work.recordings), quiet=not work.targets)

    async def take_turns() -> None:
        for recording in waiting:
            row = await _do(recording, work, transcriber, report)
            report.end(row)
            if work.table is not None:
                work.table.add(row)

    try:
        with report.bars:
            async with transcriber.open():
                ends = await asyncio.gather(*(take_turns() for _ in range(at_once)), return_exceptions=True)
    except asyncio.CancelledError:  # Ctrl-C; gather() has waited until all jobs are canceled
        report.stopped()
        raise
    for fault in filter(None, ends):
        raise fault
    if work.table is not None:
        work.table.finish()
    return report.conclude()


async def _do(recording: Recording, work: _Work, transcriber: "_Transcriber", report: "_Report") -> Row:
    """Transcribe one recording and write its files. Returns what became of it, also if it failed."""
    began = time.monotonic()
    try:
        digest = await asyncio.to_thread(recording.digest)
        before = None if work.index is None or work.force else work.index.done_before(recording, digest)
        if before is not None:
            return before
        with report.working(recording) as show:
            made = await transcriber.transcribe(recording, digest, show)
        targets = work.targets.get(recording.source)
        if targets is None:
            sys.stdout.buffer.write(next(iter(made.files.values())))
            sys.stdout.flush()
        for name, target in (targets or {}).items():
            write_whole(target, made.files[name])
    except FAILURES as error:
        return Row(recording.source, "failed", error=_reason(error))
    row = Row(
        recording.source,
        "done",
        seconds=round(made.seconds, 3),
        language=made.language,
        model=made.model,
        words=len(made.text.split()),
        outputs=tuple(map(str, (targets or {}).values())),
        warnings=made.warnings,
    )
    if work.index is not None:
        work.index.add(recording, digest, row)
    report.took[recording.source] = time.monotonic() - began
    return row


def _reason(error: Exception) -> str:
    """Why a recording failed, and what to do."""
    if isinstance(error, OSError) and error.strerror:
        return sentence(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
    code = getattr(error, "code", "")
    said = error.detail if isinstance(error, ServiceError) else str(error) or type(error).__name__
    return " ".join(filter(None, [sentence(said), ADVICE.get(code)]))


class _Report:
    """Says on standard error how far the work is: a line for each recording, and bars on a terminal."""

    def __init__(self, count: int, *, quiet: bool) -> None:
        self._count = count
        self._quiet = quiet
        self._rows: list[Row] = []
        self.took: dict[str, float] = {}
        self._console = Console(stderr=True, soft_wrap=True, highlight=False)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        self.bars = Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal)

    @contextmanager
    def working(self, recording: Recording) -> Iterator[Show]:
        """Show a bar while the block lasts."""
        bar: TaskID = self.bars.add_task(Path(recording.source).name, total=1.0)
        try:
            yield lambda share: self.bars.update(bar, completed=share)
        finally:
            self.bars.remove_task(bar)

    def end(self, row: Row) -> None:
        self._rows.append(row)
        for warning in row.warnings if row.status == "done" else ():
            self._say(f"{row.file}: Warning: {warning}")
        if self._quiet:
            if row.error is not None:
                self._say(f"{row.file}: {row.error}")
            return
        self._say(f"[{len(self._rows)}/{self._count}] {row.file}: {self._what(row)}")

    def _what(self, row: Row) -> str:
        if row.status == "failed":
            return f"failed: {row.error}"
        outputs = ", ".join(row.outputs)
        if row.status == "skipped":
            return f"done before, see {outputs}"
        took = f"{row.seconds or 0:.0f} s of audio in {self.took[row.file]:.1f} s"
        return f"{took}, {row.language or 'no language'}, {row.words} words, wrote {outputs}"

    def conclude(self) -> int:
        """List the failures. Returns the exit status."""
        failed = [row for row in self._rows if row.status == "failed"]
        if failed and self._count > 1:
            self._say(f"{len(failed)} of {self._count} failed:")
            for row in failed:
                self._say(f"  {row.file}: {row.error}")
        return 1 if failed else 0

    def stopped(self) -> None:
        done = sum(row.status != "failed" for row in self._rows)
        if not self._quiet:
            self._say(f"Stopped: {done} of {self._count} are done. The same command goes on with the others.")

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False)


class _Transcriber(ABC):
    """Transcribes recordings, here or elsewhere."""

    @abstractmethod
    def open(self) -> Any:
        """A context in which transcribe() may be called."""

    @abstractmethod
    async def transcribe(self, recording: Recording, digest: str, show: Show) -> Transcribed:
        """Raises one of FAILURES."""


# --- in this process -------------------------------------------------------------------------------------------------


class _Here(_Transcriber):
    def __init__(self, formats: Sequence[str], fields: Given, config: Config, at_once: int) -> None:
        self._formats = formats
        self._fields = without(fields, declared.MODEL.name)
        model = fields.get(declared.MODEL.name)  # whatever WHISPER_MODEL takes
        self._config = config if model is None else replace(config, whisper_model=model)
        self._at_once = at_once
        self._engine: ServedModels
        self._probe: Callable[[Path], Any]
        self._order: Order
        self._speakers: SpeakerOptions | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        named = language_named(self._fields.get("language", ""))
        heard = ENGLISH if named is None else named.code
        diarize = bool(self._fields.get(declared.DIARIZE.name))
        with ExitStack() as stack:
            threads = stack.enter_context(ThreadPoolExecutor(self._at_once * 2 + 2))
            opened = open_engines(self._config, threads, voices=diarize, live=False, at_start=[heard])
            engines, isolation = stack.enter_context(opened)
            self._engine = engines["production"]
            parsed = parse_with(parse_order, self._fields, offer=self._engine.offer, sandbox=False, has_file=True)
            self._order = order = parsed.order
            self._probe = lambda path: isolation.probe(
                path, DecodeLimits(), separate=order.separate, track=order.track, raw=order.raw
            )
            if order.diarize:
                try:
                    known = await self._engine.batch.learn_voices(parsed.known_speakers)
                except UnusableReference as error:
                    raise ConfigError(f"--known-speaker cannot be used: {error}") from error
                self._speakers = SpeakerOptions(most=order.max_speakers or MOST_VOICES, known=known)
            yield

    async def transcribe(self, recording: Recording, digest: str, show: Show) -> Transcribed:
        del digest
        order, batch = self._order, self._engine.batch
        options = BatchOptions(
            tenant="command line",
            language=order.language,
            languages=frozenset(order.languages),
            task=order.task,
            hints=order.hints,
            text=order.text,
            separate=order.separate,
            track=order.track,
            raw=order.raw,
            speakers=self._speakers,
        )
        async with _audio(recording) as path:
            probe = await asyncio.to_thread(self._probe, path)
            chunks = []
            async for chunk in batch.transcribe(path, options):
                chunks.append(chunk)
                show(seconds(chunk.end) / (probe.duration_s or float("inf")))
        duration = max(chunk.end for chunk in chunks)
        join = partial(assemble, chunks, duration=duration, engine=batch.engine_name, model_of=batch.model_of)
        made = await asyncio.to_thread(join)
        heading = Heading(
            job_id=new_id(Prefix.JOB, ms=now_ms(), chance=bytes(CHANCE_BYTES)),
            created_at=iso(now_ms()),
            words=order.word_timestamps,
            subtitles=order.subtitles,
            paragraphs=order.text.paragraphs,
            search=order.text.search,
        )
        return Transcribed(
            {name: OUTPUT_FORMATS[name].render(made, heading) for name in self._formats},
            seconds(duration),
            made.language,
            made.model,
            made.text,
            _warnings([note.partition(": ")[2] or note for note in made.notes], made.text),
        )


@asynccontextmanager
async def _audio(recording: Recording) -> AsyncIterator[Path]:
    """The file to read, while the block lasts: a temporary one for audio from the pipe or an address."""
    if recording.is_file:
        yield Path(recording.source)
        return
    with tempfile.NamedTemporaryFile() as file:
        if recording.source == PIPE:
            await asyncio.to_thread(shutil.copyfileobj, sys.stdin.buffer, file)
        else:
            await _download(recording.source, file)
        file.flush()
        yield Path(file.name)


async def _download(address: str, file: IO[bytes]) -> None:
    try:
        async with (
            httpx.AsyncClient(follow_redirects=True, timeout=60) as client,
            client.stream("GET", address) as answer,
        ):
            if answer.is_error:
                raise ServiceError(answer.status_code, "source_http_error", "the address cannot be fetched")
            async for piece in answer.aiter_bytes():
                file.write(piece)
    except httpx.TransportError as error:
        raise ConnectionError(f"the address cannot be reached: {error}") from None


def _warnings(notes: Sequence[str], text: str) -> tuple[str, ...]:
    """The warnings about a recording as sentences, each once."""
    return tuple(dict.fromkeys(map(sentence, [*notes, *([] if text.strip() else [NO_SPEECH])])))


# --- by a server -----------------------------------------------------------------------------------------------------


class _There(_Transcriber):
    def __init__(
        self, formats: Sequence[str], outputs: Sequence[str], fields: Given, reached: Connection, *, force: bool
    ) -> None:
        self._outputs = outputs
        self._fields = {**fields, "output_formats": [*formats]}
        self._reached = reached
        self._force = force
        self._client: Client

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            self._client = await stack.enter_async_context(Client(self._reached.address, self._reached.key))
            await self._client.usage()  # so that a wrong key or address is one sentence, and not one a recording
            yield

    async def transcribe(self, recording: Recording, digest: str, show: Show) -> Transcribed:
        sending = asyncio.create_task(self._submit(recording, digest))
        try:
            job_id: str = (await asyncio.shield(sending))["job_id"]
        except asyncio.CancelledError:  # Ctrl-C, and the server may have made the job already
            with suppress(ServiceError, httpx.TransportError, TimeoutError):
                async with asyncio.timeout(CANCEL_S):
                    await self._cancel(recording, (await sending)["job_id"])
            raise
        try:
            async for event in self._client.events(job_id):
                if "progress" in event:
                    show(event["progress"])
            record = await self._client.complete(job_id)
        except asyncio.CancelledError:
            await self._cancel(recording, job_id)
            raise
        return Transcribed(
            {name: await self._client.output(record, name) for name in self._outputs},
            record["duration"] or 0.0,
            record["language"],
            record["model"],
            record["text"] or "",
            _warnings(
                [warning.get("message", warning["code"]) for warning in record["warnings"]], record["text"] or ""
            ),
        )

    async def _submit(self, recording: Recording, digest: str) -> dict[str, Any]:
        """Send the recording, or find the job of a run that was broken off."""
        if recording.is_address:
            return await self._client.submit(recording.source, **self._fields)
        async with _audio(recording) as path:
            if recording.source == PIPE or self._force:
                return await self._client.submit(path, **self._fields)
            said = f"{digest} {recording.source} {sorted(self._fields.items())}"
            key = hashlib.sha256(said.encode()).hexdigest()
            try:
                job = await self._client.submit(path, idempotency_key=key, **self._fields)
            except ServiceError as error:
                if error.code not in ("idempotency_key_reused", "idempotency_in_progress", "job_not_found"):
                    raise
                return await self._client.submit(path, **self._fields)
            kept = {**job.get("formats", {}), **job.get("outputs", {})}
            lacks = job["status"] == "completed" and not kept.keys() >= {*self._outputs}
            if lacks or job["status"] in ("failed", "canceled"):  # that of another run
                return await self._client.submit(path, **self._fields)
            return job

    async def _cancel(self, recording: Recording, job_id: str) -> None:
        """Cancel the job after Ctrl-C, or say its number."""
        try:
            async with asyncio.timeout(CANCEL_S):
                await self._client.cancel(job_id)
            said = f"Canceled {job_id}."
        except (ServiceError, httpx.TransportError, TimeoutError):
            said = f"{job_id} goes on at the server. `scribewire jobs cancel {job_id}` ends it."
        print(f"{recording.source}: {said}", file=sys.stderr)
