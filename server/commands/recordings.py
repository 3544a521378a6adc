"""What `scribewire transcribe` works on: recordings, the files that become of them, and the index of what is done.

The index is a hidden file in the folder of the outputs, a line of JSON for each recording that is done. By it a run
that was broken off goes on, and names stay the same.
"""

import csv
import glob
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from pipeline.ingest.input_formats import INPUT_FORMATS
from server.config import ConfigError, FileProblem

EXTENSIONS = frozenset(f".{kind.extension}" for kind in INPUT_FORMATS)
INDEX = ".scribewire.jsonl"
PIPE = "-"


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording. *source* is a file, an address or PIPE, *base* where its outputs go, without an extension."""

    source: str
    base: Path

    @property
    def is_address(self) -> bool:
        return self.source.startswith(("http://", "https://"))

    @property
    def is_file(self) -> bool:
        return self.source != PIPE and not self.is_address

    def digest(self) -> str:
        """What the recording holds, in short. An address stands for its content, which only a download would show."""
        if not self.is_file:
            return hashlib.sha256(self.source.encode()).hexdigest()
        with Path(self.source).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def is_same(self, other: Path) -> bool:
        """Whether *other* is the file of this recording."""
        return self.is_file and other.exists() and other.samefile(self.source)


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the CSV. *seconds* are those of the audio, *words* their number."""

    file: str
    status: str  # done | skipped | failed
    seconds: float | None = None
    language: str | None = None
    model: str | None = None
    words: int | None = None
    outputs: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str | None = None

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "Row":
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()
        }
        return cls(**values)

    def cells(self) -> list[object]:
        values = (getattr(self, one.name) for one in fields(self))
        return ["; ".join(value) if isinstance(value, tuple) else "" if value is None else value for value in values]


COLUMNS = tuple(one.name for one in fields(Row))


def find_recordings(sources: Sequence[str]) -> list[Recording]:
    """The recordings that *sources* name: files, folders with all below them, patterns, addresses, or the pipe.

    Each file is taken once. Raises ConfigError for what is not there.
    """
    found: dict[object, Recording] = {}
    for source in sources:
        for one in _expand(source):
            found.setdefault(Path(one.source).resolve() if one.is_file else one.source, one)
    if PIPE in found and len(found) > 1:
        raise ConfigError("- reads one recording from the pipe, and cannot stand beside other recordings")
    return list(found.values())


def _expand(source: str) -> Iterator[Recording]:
    path = Path(source)
    if source == PIPE:
        yield Recording(PIPE, Path("transcript"))
    elif source.startswith(("http://", "https://")):
        yield Recording(source, Path(Path(urlsplit(source).path).stem or "transcript"))
    elif path.is_dir():
        yield from _in_folder(path)
    elif path.exists():
        yield Recording(source, Path(path.stem))
    else:
        matches = [Path(name) for name in sorted(glob.glob(source, recursive=True))]  # noqa: PTH207  takes any pattern
        files = [match for match in matches if match.is_file()]
        if not files:
            raise FileProblem(
                source, "no file matches this pattern" if glob.has_magic(source) else "there is no such file"
            )
        for match in files:
            yield Recording(str(match), Path(match.stem))


def _in_folder(folder: Path) -> Iterator[Recording]:
    inside = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in EXTENSIONS and path.is_file()]
    shown = [path for path in inside if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    if not shown:
        raise FileProblem(folder, "there is no audio or video file in this folder, by their names")
    for path in shown:
        yield Recording(str(path), path.relative_to(folder).with_suffix(""))


@dataclass(slots=True)
class Index:
    """What was done before in the *folder* of outputs, with the same options or others."""

    folder: Path
    options: str  # what all outputs of this run depend on, in short
    _lines: list[dict[str, Any]] = field(default_factory=list)
    _claimed: set[int] = field(default_factory=set)  # lines that a recording of this run stands for

    @classmethod
    def read(cls, folder: Path, options: Mapping[str, object]) -> "Index":
        short = hashlib.sha256(orjson.dumps(options, option=orjson.OPT_SORT_KEYS)).hexdigest()
        index = cls(folder, short)
        with suppress(FileNotFoundError):
            for line in (folder / INDEX).read_bytes().splitlines():
                with suppress(orjson.JSONDecodeError):  # a line that was cut off with its process
                    index._lines.append(orjson.loads(line))
        return index

    def done_before(self, recording: Recording, digest: str) -> Row | None:
        """The row of this content with these options, if all its outputs are still there."""
        same = [
            (number, line)
            for number, line in enumerate(self._lines)
            if (line["digest"], line["options"]) == (digest, self.options) and number not in self._claimed
        ]
        for number, line in sorted(same, key=lambda one: one[1]["source"] != _full(recording)):
            row = Row.of(line["row"])
            if all(Path(output).exists() for output in row.outputs):
                self._claimed.add(number)
                return replace(row, file=recording.source, status="skipped")
        return None

    def base_of(self, recording: Recording) -> Path | None:
        """Where the outputs of this recording went before."""
        return next((Path(str(one["base"])) for one in self._lines if one["source"] == _full(recording)), None)

    def knows(self, output: Path) -> bool:
        """Whether this command wrote *output*."""
        return any(str(output) in one["row"]["outputs"] for one in self._lines)

    def bases(self) -> Iterator[str]:
        for line in self._lines:
            yield str(line["base"]).casefold()

    def add(self, recording: Recording, digest: str, row: Row) -> None:
        line = {
            "source": _full(recording),
            "digest": digest,
            "options": self.options,
            "base": str(recording.base),
            "row": asdict(row),
        }
        with (self.folder / INDEX).open("ab") as file:
            file.write(orjson.dumps(line) + b"\n")


def _full(recording: Recording) -> str:
    return str(Path(recording.source).resolve()) if recording.is_file else recording.source


def apart(recordings: Sequence[Recording], index: Index) -> list[Recording]:
    """The recordings with bases that differ, also where capitals do not count. Those of earlier runs stay."""
    known = {recording.source: base for recording in recordings if (base := index.base_of(recording)) is not None}
    taken = {*index.bases()}
    named = []
    for recording in recordings:
        base = known.get(recording.source)
        if base is None:
            base = next(base for base in _bases(recording) if str(base).casefold() not in taken)
            taken.add(str(base).casefold())
        named.append(Recording(recording.source, base))
    return named


def _bases(recording: Recording) -> Iterator[Path]:
    """The names that outputs may have, the plainest first: talk, talk.mp3, day1-talk, day1-talk.mp3, talk-2, ..."""
    base, path = recording.base, Path(recording.source)
    yield base
    if recording.is_file:
        yield base.with_name(base.name + path.suffix)
        parent = path.resolve().parent.name
        yield base.with_name(f"{parent}-{base.name}")
        yield base.with_name(f"{parent}-{base.name}{path.suffix}")
    for number in range(2, 1_000_000):
        yield base.with_name(f"{base.name}-{number}")


def check_writable(folder: Path, option: str) -> None:
    """Make *folder*, and raise ConfigError unless files can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(f"{option} cannot be written to: {folder}: {error.strerror}; choose another folder") from None


def write_whole(path: Path, data: bytes) -> None:
    """Write a file at once, so that it is never there by half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


class Table:
    """The CSV: rows as they come, so that it tells how far a broken run came, and at the end in the given order."""

    def __init__(self, path: Path, order: Iterable[str]) -> None:
        self._path = path
        self._order = {name: number for number, name in enumerate(order)}
        self._rows: list[Row] = []
        try:
            self._write([])
        except OSError as error:
            raise ConfigError(f"--csv cannot be written: {path}: {error.strerror}; choose another file") from None

    def add(self, row: Row) -> None:
        self._rows.append(row)
        with self._path.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(row.cells())

    def finish(self) -> None:
        self._write(sorted(self._rows, key=lambda row: self._order[row.file]))

    def _write(self, rows: Sequence[Row]) -> None:
        with self._path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([COLUMNS, *(row.cells() for row in rows)])
