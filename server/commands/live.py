"""scribewire live: streams a file or a microphone to a server at the speed of speech, and prints the words."""

import argparse
import asyncio
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.text import Text

from pipeline.audio import RATE, Samples
from pipeline.batch import on_thread
from pipeline.ingest.input_formats import SEPARATE, DecodeLimits, Encoding, TrackChoice
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.track_choice import chosen_track
from pipeline.ingest.vad import Vad
from server.client import Client, LiveStream
from server.commands.connection import Connection, add_arguments, connection, reaching, sentence
from server.commands.request_options import add_options, members_given, parse_with, without
from server.config import Config, ConfigError, FileProblem
from server.model.orders import CONTAINER
from server.parsing import declared
from server.parsing.orders import parse_live_order

PACKET = RATE // 10
ENCODING: Encoding = "pcm_f32le"
"""The encoding that is sent. In 16 bits a recording that is 45 dB too quiet would lose soft sounds and words."""

MEMBERS = tuple(
    member
    for member in declared.LIVE_MEMBERS
    if member
    not in (
        declared.ENCODING,
        declared.SAMPLE_RATE,
        declared.AUDIO_CHANNELS,
        declared.CHANNEL_COUNT,
        declared.RETENTION,
    )
)
"""The members of requests that are options: this command chooses the encoding."""

START_S = 5.0  # how long a microphone may take until its first sound
MICROPHONE = "mic"


@dataclass(frozen=True, slots=True)
class Recorder:
    """A program that writes 16 kHz mono s16le of a microphone to standard output, and how it names microphones."""

    command: tuple[str, ...]
    device_option: str  # with the name of a microphone behind it
    list_command: tuple[str, ...]
    device: re.Pattern[str]  # in a line of the list: the name, and what it is

    def devices(self) -> list[tuple[str, str]]:
        """The names of its microphones, each with what it is."""
        if not self.list_command:
            return []
        try:
            done = subprocess.run(  # noqa: S603  the commands of RECORDERS
                self.list_command, capture_output=True, text=True, timeout=START_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return []
        found = filter(None, map(self.device.match, done.stdout.splitlines()))
        return [
            (
                match["name"] if "name" in match.groupdict() else f"plughw:{match['card']},{match['number']}",
                match["what"],
            )
            for match in found
        ]


RECORDERS = (
    Recorder(
        ("arecord", "-q", "-f", "S16_LE", "-r", str(RATE), "-c", "1", "-t", "raw"),
        "-D",
        ("arecord", "-l"),
        re.compile(r"card (?P<card>\d+): [^\[]*\[(?P<what>[^\]]*)\], device (?P<number>\d+):"),
    ),
    Recorder(
        ("parec", "--raw", "--format=s16le", f"--rate={RATE}", "--channels=1"),
        "-d",
        ("pactl", "list", "short", "sources"),
        re.compile(r"\d+\t(?P<name>\S+)\t(?P<what>.*)"),
    ),
    Recorder(
        ("rec", "-q", "-t", "raw", "-r", str(RATE), "-c", "1", "-b", "16", "-e", "signed", "-"),
        "",  # SoX has none
        (),
        re.compile(""),
    ),
)


def add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("live", help="stream audio to a server, print its words")
    parser.add_argument(
        "source", nargs="?", metavar="FILE|mic", help="a recording, sent at the speed of speech, or mic"
    )
    parser.add_argument("--list-devices", action="store_true", help="list the microphones, and do nothing else")
    parser.add_argument("--device", metavar="NAME", help="with mic: one that --list-devices names")
    add_arguments(parser, meaning="address of the server (default: the one of this machine)")
    add_options(parser, MEMBERS)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace, config: Config) -> int:
    if given.list_devices:
        return _list_devices()
    if given.source is None:
        raise ConfigError("live needs a FILE or mic; --list-devices lists the microphones")
    if given.source != MICROPHONE and not Path(given.source).is_file():
        raise FileProblem(given.source, "there is no such file; give a FILE, or mic for the microphone")
    if given.device is not None and given.source != MICROPHONE:
        raise ConfigError("--device is for mic, and not for a file")
    fields = members_given(given, MEMBERS)
    order = parse_with(parse_live_order, {**fields, "encoding": CONTAINER}).order
    if order.track == SEPARATE:
        raise ConfigError("--track must be auto, mix or a number for live audio, got 'separate'")
    reached = connection(given, config)
    options = without(fields, declared.TRACK.name) | {"output_formats": ["txt"]}
    with reaching(reached.address):
        asyncio.run(_stream(given, options, reached, order.track))
    return 0


def _list_devices() -> int:
    found = [row for recorder in _installed() for row in recorder.devices()]
    for name, what in found:
        print(f"{name}  {what}")
    if not found:
        print(f"scribewire: {NO_MICROPHONE}", file=sys.stderr)
    return 0 if found else 1


def _installed() -> list[Recorder]:
    return [recorder for recorder in RECORDERS if shutil.which(recorder.command[0])]


NO_MICROPHONE = (
    "There is no microphone that arecord, parec or rec can read. Connect one, install one of these programs, or open "
    "the server's page in a browser."
)


async def _stream(
    given: argparse.Namespace, options: Mapping[str, Any], reached: Connection, track: TrackChoice
) -> None:
    """Stream the audio and print the words. There is no session before there is audio."""
    frames = _microphone(given.device) if given.source == MICROPHONE else _play(Path(given.source), track)
    async with aclosing(frames), Client(reached.address, reached.key) as client:
        first = await anext(frames, None)
        if first is None:
            raise FileProblem(given.source, "there is no sound in it")
        await _converse(client, options, first, frames)


async def _converse(
    client: Client, options: Mapping[str, Any], first: Samples, frames: AsyncGenerator[Samples]
) -> None:
    async with client.live(encoding=ENCODING, sample_rate=RATE, **options) as stream:
        sending = asyncio.create_task(_send(stream, first, frames))
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, sending.cancel)
        changed = await print_events(stream.events())
        sending.cancel()  # if the session has ended before the audio
        with suppress(asyncio.CancelledError):
            await sending
        record = await client.complete(stream.job_id)
        if changed:
            print("\nAt the end the speakers are:\n")
            print((await client.output(record, "txt")).decode(), end="")


async def _send(stream: LiveStream, first: Samples, frames: AsyncGenerator[Samples]) -> None:
    """Send the audio until it ends or the task is cancelled, and finish the session."""
    try:
        await stream.send(encode(first))
        async for frame in frames:
            await stream.send(encode(frame))
    finally:
        stream.close()


def encode(frame: Samples) -> bytes:
    """The samples in ENCODING, without any loss."""
    return frame.astype("<f4").tobytes()


async def _play(path: Path, track: TrackChoice) -> AsyncGenerator[Samples]:
    """Yield the recording in frames of 0.1 s, each at the time when it would be spoken."""
    clock = asyncio.get_running_loop()
    began, sent = clock.time(), 0
    with (
        Isolation() as isolation,
        chosen_track(isolation, path, DecodeLimits(), Vad(), track=track) as heard,
        ThreadPoolExecutor(1) as threads,
    ):
        for note in heard.choice.notes:
            print(f"{path}: Warning: {sentence(note.partition(': ')[2])}", file=sys.stderr)
        async with on_thread(heard.samples, threads) as pieces:
            async for piece in pieces:
                for at in range(0, len(piece), PACKET):
                    frame = piece[at : at + PACKET]
                    sent += len(frame)
                    await asyncio.sleep(max(0.0, began + sent / RATE - clock.time()))
                    yield frame


async def _microphone(device: str | None) -> AsyncGenerator[Samples]:
    """Yield the audio of a microphone, with a recording program of the system. Raises ConfigError without a sound."""
    recorders = _installed()
    if device is not None:
        recorders = [one for one in recorders if device in dict(one.devices())]
        if not recorders:
            raise ConfigError(f"--device must be one that `scribewire live --list-devices` names, got {device!r}")
    if not recorders:
        raise ConfigError(NO_MICROPHONE)
    command = [*recorders[0].command, *([] if device is None else [recorders[0].device_option, device])]
    complaints = tempfile.TemporaryFile()  # noqa: SIM115  closed at the end; a pipe that nobody reads would fill up
    recorder = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=complaints)
    assert recorder.stdout is not None
    try:
        data = b""
        with suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                data = await recorder.stdout.read(2 * PACKET)
        if not data:
            complaints.seek(0)
            said = complaints.read().decode(errors="replace").strip().splitlines()
            raise ConfigError(f"{NO_MICROPHONE} {command[0]} said: {said[-1] if said else 'nothing'}")
        while data:
            yield np.frombuffer(data[: len(data) // 2 * 2], "<i2").astype(np.float32) / np.float32(32768)
            data = await recorder.stdout.read(2 * PACKET)
    finally:
        with suppress(ProcessLookupError):
            recorder.terminate()
        await recorder.wait()
        complaints.close()


async def print_events(events: AsyncIterator[Mapping[str, Any]]) -> bool:
    """Print the final words, one line per segment. A terminal also shows partials, dimmed.

    Returns whether the speakers of printed words have changed since.
    """
    console = Console()
    said: list[str] = []
    printed: list[str | None] = []  # the speaker of each word
    changed = False
    with Live(console=console, refresh_per_second=10, transient=True, auto_refresh=console.is_terminal) as view:
        async for event in events:
            match event["type"]:
                case "word":
                    said.append(event["word"])
                    view.update(Text(" ".join(said)))
                case "partial":
                    view.update(Text(" ".join(said)) + Text(" " + event["text"], style="dim"))
                case "warning":
                    print(f"scribewire: Warning: {sentence(event['message'])}", file=sys.stderr)
                case "segment":
                    console.print(Text(f"{event['speaker']}: " if "speaker" in event else "") + Text(event["text"]))
                    printed += [event.get("speaker")] * len(said)
                    said.clear()
                case "speakers.revised" if event["final"]:
                    changed = any(
                        {*printed[run["first"] : run["last"] + 1]} != {run["speaker"]} for run in event["words"]
                    )
    return changed
