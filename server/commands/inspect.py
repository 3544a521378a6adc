"""scribewire inspect: what a server would hear of a recording, before it is transcribed."""

import argparse
import sys
from pathlib import Path
from typing import Any

import orjson

from pipeline.ingest.input_formats import Track
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.track_choice import Inspection, inspect
from pipeline.ingest.vad import Vad
from server.config import Config, FileProblem
from server.logs import configure

SPEECH = {True: "somebody speaks", False: "nobody speaks", None: "cannot be decoded"}


def add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "inspect", help="show a file's tracks, channels, length and level, and what would be left out"
    )
    parser.add_argument("file", metavar="FILE", help="an audio or video file")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace, config: Config) -> int:
    configure(style=config.log_format, level="error")
    path = Path(given.file)
    if not path.is_file():
        raise FileProblem(path, "there is no such file")
    with Isolation() as isolation:
        found = inspect(isolation, path, Vad())
    if given.json:
        sys.stdout.buffer.write(orjson.dumps(as_json(path, found), option=orjson.OPT_INDENT_2) + b"\n")
    else:
        print("\n".join(as_text(path, found)))
    return 0


LAYOUTS = {"1 channels": "mono", "2 channels": "stereo"}
"""What FFmpeg calls the channels of containers that do not say where they belong."""


def as_json(path: Path, found: Inspection) -> dict[str, Any]:
    """What --json prints. Lengths are in seconds, levels in dBFS."""
    probe = found.probe
    return {
        "file": path.name,
        "bytes": path.stat().st_size,
        "format": probe.format,
        "heard": {"track": probe.track, "channel": found.focus},
        "length": {"container": _rounded(probe.duration_s), "sound": _rounded(found.sound_s)},
        "speech": _rounded(found.spoken_s),
        "level": {"loudest": _rounded(found.loudest_db, 1), "speech": _rounded(found.speech_db, 1)},
        "tracks": [_track(track, found) for track in probe.tracks],
        "channels": [
            {"channel": one.number, "loudest": _rounded(one.loudest_db, 1), "copy_of": one.copy_of}
            for one in found.channels
        ],
        "warnings": [dict(zip(("code", "message"), note.split(": ", 1), strict=False)) for note in found.notes],
    }


def _track(track: Track, found: Inspection) -> dict[str, Any]:
    return {
        "track": track.number,
        "language": track.language,
        "title": track.title,
        "codec": track.codec,
        "rate": track.rate or None,
        "channels": track.channels or None,
        "layout": track.layout or None,
        "default": track.default,
        "commentary": track.aside,
        "length": _rounded(track.duration_s),
        "speech": found.speech[track.number],
    }


def as_text(path: Path, found: Inspection) -> list[str]:
    """The lines for people."""
    probe = found.probe
    stated = "not stated" if probe.duration_s is None else f"{probe.duration_s:.1f} s by the container"
    lines = [
        f"{path.name}: {probe.format}, {stated}, {found.sound_s:.1f} s of sound, {found.spoken_s:.1f} s of speech",
        f"level: loudest {found.loudest_db:.0f} dBFS"
        + ("" if found.speech_db is None else f", speech {found.speech_db:.0f} dBFS"),
    ]
    for track in probe.tracks:
        is_heard = track.number == probe.track
        facts = [
            track.codec or "no decoder",
            *([f"{track.rate} Hz"] if track.rate else []),
            LAYOUTS.get(track.layout, track.layout),
        ]
        facts += ["default"] * track.default + ["commentary or description"] * track.aside
        facts += [SPEECH[found.speech[track.number]]]
        mark = "→" if is_heard else " "
        lines.append(f"{mark} track {track.name}: {', '.join(filter(None, facts))}{', is transcribed' * is_heard}")
    for one in found.channels:
        same = "" if one.copy_of is None else f", the same as channel {one.copy_of}"
        heard = ", is used while somebody speaks there" if one.number == found.focus else ""
        lines.append(f"    channel {one.number}: loudest {one.loudest_db:.0f} dBFS{same}{heard}")
    return [*lines, *(f"! {note.partition(': ')[2] or note}" for note in found.notes)]


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)
