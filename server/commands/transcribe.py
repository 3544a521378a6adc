"""scribewire transcribe: transcribes a file, in this process or by a server.

A single format is printed to standard output. Several formats are written as files, into the folder --out or the
current one. Everything else is printed to standard error.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from pipeline.audio import seconds
from pipeline.batch import Batch, BatchOptions
from pipeline.documents.assemble import assemble
from pipeline.documents.formats import OUTPUT_FORMATS, Heading
from pipeline.errors import UnusableReference
from pipeline.ingest.containers import DecodeLimits
from pipeline.ingest.tracks import AUTO
from pipeline.language_names import ENGLISH, language_named
from pipeline.recognition.engine import TRANSCRIBE, TRANSLATE
from pipeline.recognition.hints import Hints
from pipeline.speakers.options import INSTALL, MOST_VOICES, SpeakerOptions
from pipeline.text.options import TextOptions
from pipeline.words import Chunk, Transcript
from server.clock import now_ms
from server.commands import speech
from server.config import Config, ConfigError
from server.engines import open_engines
from server.jobs.members import members_of
from server.jobs.order_members import CHANNEL_MODE, RAW_MEMBERS, SUBTITLE_MEMBERS, TASK, TRACK
from server.jobs.orders import audio_order, subtitle_shape
from server.jobs.spoken import Spoken
from server.jobs.text_members import text_options
from server.logs import configure
from server.model.ids import CHANCE_BYTES, Prefix, new_id
from server.model.instants import iso


def add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("transcribe", help="transcribe one file")
    parser.add_argument("file", metavar="FILE|URL", help="an audio or video file, its address, or - for standard input")
    parser.add_argument("--formats", default="txt", help=f"comma list of {', '.join(OUTPUT_FORMATS)} (default: txt)")
    parser.add_argument("--words", action="store_true", help="list every word with its times in the JSON")
    speech.add_arguments(parser, server=None, meaning="address of a server (default: this process transcribes)")
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="the model: of the server one of GET /v1/models, here whatever WHISPER_MODEL takes (default: what is set)",
    )
    speech.add_member(parser, TASK)
    speech.add_member(parser, CHANNEL_MODE)
    parser.set_defaults(task=TASK.default, channels=CHANNEL_MODE.default)
    parser.add_argument(f"--{TRACK.name}", metavar="TRACK", default=TRACK.default, help=TRACK.meaning)
    for member in RAW_MEMBERS:
        parser.add_argument(f"--{member.name.replace('_', '-')}", metavar="VALUE", help=member.meaning)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write FILE.json, FILE.srt, ... into this folder (several formats: by default the current one)",
    )
    for member in SUBTITLE_MEMBERS:
        meaning = member.meaning if member.default is None else f"{member.meaning} ({member.default:g})"
        parser.add_argument(f"--{member.name.replace('_', '-')}", metavar="N", help=meaning)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace, config: Config) -> int:
    configure(style=config.log_format, level="warning" if config.log_level == "info" else config.log_level)
    formats = _formats(given.formats)
    subtitles = _subtitles(given)
    vars(given).update(_audio_order(given))
    given.keywords = speech.keywords_of(given)
    given.text = speech.text_fields(given, given.keywords)
    targets = _targets(given, formats)
    given.known_speakers = speech.known_speakers_of(given)
    if given.server is None:
        files = _transcribe_here(given, formats, subtitles, config)
    else:
        with speech.reaching(given.server):
            files = asyncio.run(_transcribe_there(given, formats, subtitles, speech.key_of(given, config)))
    if not targets:
        sys.stdout.buffer.write(files[formats[0]])
    for name, target in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(files[name])
        print(f"scribewire: wrote {target}", file=sys.stderr)
    return 0


def _targets(given: argparse.Namespace, formats: Sequence[str]) -> dict[str, Path]:
    """The file to write for each format; {} for standard output. Raises ConfigError if one is the input itself."""
    if given.out is None and len(formats) == 1:
        return {}
    folder = Path() if given.out is None else given.out
    targets = {name: folder / f"{_stem(given.file)}.{OUTPUT_FORMATS[name].extension}" for name in formats}
    for target in targets.values():
        if target.exists() and Path(given.file).exists() and target.samefile(given.file):
            raise ConfigError(f"--out must be a folder in which {target.name} is not the input, got {str(folder)!r}")
    return targets


def _stem(source: str) -> str:
    path = urlsplit(source).path if _is_address(source) else source
    return (source != "-" and Path(path).stem) or "transcript"


def _is_address(source: str) -> bool:
    return source.startswith(("http://", "https://"))


def _formats(text: str) -> list[str]:
    names = list(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    if not names or not OUTPUT_FORMATS.keys() >= set(names):
        raise ConfigError(f"--formats must be a comma list of {', '.join(OUTPUT_FORMATS)}, got {text!r}")
    return names


def _audio_order(given: argparse.Namespace) -> dict[str, Any]:
    """The members separate, track and raw of an Order."""
    names = (CHANNEL_MODE.name, TRACK.name, *(member.name for member in RAW_MEMBERS))
    members = members_of({name: value for name in names if (value := getattr(given, name)) is not None})
    found = audio_order(members)
    for fault in members.errors:
        raise ConfigError(f"--{fault.param.replace('_', '-')} cannot be used: {fault.message}")
    return found


def _subtitles(given: argparse.Namespace) -> dict[str, str]:
    """The given members that shape subtitles. Raises ConfigError for the first wrong one."""
    shape = {member.name: value for member in SUBTITLE_MEMBERS if (value := getattr(given, member.name)) is not None}
    members = members_of(shape)
    subtitle_shape(members)
    for fault in members.errors:
        raise ConfigError(f"--{fault.param.replace('_', '-')} {fault.message}, got {shape[fault.param]!r}")
    return shape


@contextmanager
def _audio(source: str) -> Iterator[Path]:
    """The file to read, while the block lasts: a temporary one for audio from standard input or an address."""
    if source != "-" and not _is_address(source):
        if not Path(source).is_file():
            raise ConfigError(f"FILE must be an existing file, got {source!r}")
        yield Path(source)
        return
    with tempfile.NamedTemporaryFile() as file:
        if source == "-":
            shutil.copyfileobj(sys.stdin.buffer, file)
        else:
            with speech.reaching(source):
                _download(source, file)
        file.flush()
        yield Path(file.name)


def _download(address: str, file: IO[bytes]) -> None:
    import httpx  # noqa: PLC0415  takes 0.2 s, and most files are on this machine

    from server.client import ServiceError  # noqa: PLC0415  as above

    with httpx.stream("GET", address, follow_redirects=True, timeout=60) as answer:
        if answer.is_error:
            raise ServiceError(answer.status_code, "source_http_error", f"{address} cannot be fetched")
        for piece in answer.iter_bytes():
            file.write(piece)


# --- in this process -------------------------------------------------------------------------------------------------


def _transcribe_here(
    given: argparse.Namespace, formats: Sequence[str], subtitles: Mapping[str, str], config: Config
) -> dict[str, bytes]:
    """Transcribe in this process. Returns the content of each format's file."""
    with _audio(given.file) as path:
        transcript = asyncio.run(_transcribe(path, given, config))
    heading = Heading(
        job_id=new_id(Prefix.JOB, ms=now_ms(), chance=bytes(CHANCE_BYTES)),
        created_at=iso(now_ms()),
        words=given.words,
        subtitles=subtitle_shape(members_of(subtitles)),
        paragraphs=_text(given, Spoken()).paragraphs,
        search=_text(given, Spoken()).search,
    )
    return {name: OUTPUT_FORMATS[name].render(transcript, heading) for name in formats}


def _text(given: argparse.Namespace, spoken: Spoken) -> TextOptions:
    return text_options(members_of(given.text), spoken, names=given.keywords)


async def _speaker_options(given: argparse.Namespace, batch: Batch) -> SpeakerOptions | None:
    if not given.diarize:
        return None
    try:
        known = await batch.learn_voices(given.known_speakers)
    except UnusableReference as error:
        raise ConfigError(f"--known-speaker cannot be used: {error}") from error
    return SpeakerOptions(most=given.max_speakers or MOST_VOICES, known=known)


async def _transcribe(path: Path, given: argparse.Namespace, config: Config) -> Transcript:
    if given.model is not None:
        config = replace(config, whisper_model=given.model)
    named = language_named(given.language or "")
    heard = ENGLISH if named is None else named.code
    with (
        ThreadPoolExecutor(4) as threads,
        open_engines(config, threads, voices=given.diarize, live=False, at_start=[heard]) as opened,
    ):
        engines, isolation = opened
        engine = engines["production"]
        spoken = speech.spoken_here(given, engine.offer)
        if given.task == TRANSLATE and (refusal := engine.offer.translation_refusal) is not None:
            raise ConfigError(f"--task cannot be translate: {refusal}")
        if given.diarize and not engine.offer.speakers:
            raise ConfigError(f"--diarize needs models that are not installed: {INSTALL}")
        probe = await asyncio.to_thread(
            isolation.probe, path, DecodeLimits(), separate=given.separate, track=given.track, raw=given.raw
        )
        chunks: list[Chunk] = []
        with _progress(probe.duration_s) as show:
            options = BatchOptions(
                tenant="command line",
                language=spoken.language,
                languages=frozenset(spoken.languages),
                task=given.task,
                hints=Hints(tuple(given.keywords)),
                text=_text(given, spoken),
                separate=given.separate,
                track=given.track,
                raw=given.raw,
                speakers=await _speaker_options(given, engine.batch),
            )
            async for chunk in engine.batch.transcribe(path, options):
                chunks.append(chunk)
                show(seconds(chunk.end))
    duration = max(chunk.end for chunk in chunks)
    made = assemble(chunks, duration=duration, engine=engine.batch.engine_name, model_of=engine.batch.model_of)
    _print_notes(made.notes)
    return made


# --- by a server -----------------------------------------------------------------------------------------------------


async def _transcribe_there(
    given: argparse.Namespace, formats: Sequence[str], subtitles: Mapping[str, str], key: str
) -> dict[str, bytes]:
    """Transcribe on a server, which fetches an address itself. Returns each format's content. Raises ServiceError."""
    from server.client import Client  # noqa: PLC0415  as in _download

    fields = {"output_formats": formats, "word_timestamps": given.words, **subtitles, **given.text}
    fields |= speech.speaker_fields(given, given.known_speakers)
    usual = {"channels": "mixed", "track": AUTO, "task": TRANSCRIBE, "keywords": ()}
    for name in (
        "channels",
        "track",
        "task",
        "language",
        "languages",
        "keywords",
        "model",
        *(member.name for member in RAW_MEMBERS),
    ):
        if (value := getattr(given, name)) not in (None, usual.get(name)):
            fields[name] = value
    async with Client(given.server, key) as client:
        if _is_address(given.file):
            job = await client.submit(given.file, **fields)
        else:
            with _audio(given.file) as path:
                job = await client.submit(path, **fields)
        with _progress(1.0, "transcribed {task.percentage:.0f} %") as show:
            async for event in client.events(job["job_id"]):
                if "progress" in event:
                    show(event["progress"])
        record = await client.complete(job["job_id"])
        _print_notes(warning.get("message", warning["code"]) for warning in record["warnings"])
        return {name: await client.output(record, name) for name in formats}


# --- for both --------------------------------------------------------------------------------------------------------


def _print_notes(notes: Iterable[str]) -> None:
    for note in dict.fromkeys(notes):
        print(f"scribewire: note: {note}", file=sys.stderr)


@contextmanager
def _progress(total: float | None, label: str = "{task.completed:.0f} s of audio") -> Iterator[Any]:
    """A function that shows how much is done: with a bar on a terminal, else not at all."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415  takes 0.1 s, and programs do not look at it
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415  as above

    columns = (TextColumn(label), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda done: progress.update(task, completed=done)
