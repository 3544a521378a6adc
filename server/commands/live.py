"""scribewire live: streams a file or a microphone to a server at the speed of speech, and prints the words."""

import argparse
import asyncio
import shutil
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.text import Text

from pipeline.audio import RATE, Samples
from pipeline.batch import on_thread
from pipeline.ingest.containers import DecodeLimits
from pipeline.ingest.encodings import Encoding
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.survey import chosen_track
from pipeline.ingest.tracks import SEPARATE, TrackChoice
from pipeline.ingest.vad import VoiceDetector
from server.client import Client, LiveStream
from server.commands import speech
from server.config import Config, ConfigError
from server.jobs.members import members_of
from server.jobs.order_members import EAGERNESS, ENDPOINTING, LATENCY, TASK, TRACK

PACKET = RATE // 10
ENCODING: Encoding = "pcm_f32le"
"""The encoding that is sent. In 16 bits a recording that is 45 dB too quiet would lose soft sounds and words."""

RECORDERS = (  # programs that write 16 kHz mono s16le of the default microphone to standard output
    ("arecord", "-q", "-f", "S16_LE", "-r", str(RATE), "-c", "1", "-t", "raw"),
    ("parec", "--raw", "--format=s16le", f"--rate={RATE}", "--channels=1"),
    ("rec", "-q", "-t", "raw", "-r", str(RATE), "-c", "1", "-b", "16", "-e", "signed", "-"),
)


def add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("live", help="stream audio to a server, print its words")
    parser.add_argument("source", metavar="FILE|mic", help="a recording, sent at the speed of speech, or mic")
    speech.add_arguments(parser, server="http://127.0.0.1:8000", meaning="address of the server")
    for member in (TASK, LATENCY, ENDPOINTING, EAGERNESS):
        speech.add_member(parser, member)
    parser.add_argument(f"--{TRACK.name}", metavar="TRACK", default=TRACK.default, help=TRACK.meaning)
    parser.set_defaults(task=TASK.default, run=run)


def run(given: argparse.Namespace, config: Config) -> int:
    key = speech.key_of(given, config)
    if given.source != "mic" and not Path(given.source).is_file():
        raise ConfigError(f"FILE must be an existing file or mic, got {given.source!r}")
    given.track = _track(given.track)
    speakers = speech.speaker_fields(given, speech.known_speakers_of(given))
    names = speech.keywords_of(given)
    options = {
        **speech.spoken_fields(given),
        "keywords": names,
        "task": given.task,
        "latency": given.latency,
        "endpointing": given.endpointing,
        "eagerness": given.eagerness,
        "output_formats": ["txt"],
        **speakers,
        **speech.text_fields(given, names),
    }
    with speech.reaching(given.server):
        asyncio.run(_stream(given, options, key))
    return 0


def _track(given: object) -> TrackChoice:
    members = members_of({TRACK.name: given})
    track = members.get(TRACK)
    for fault in members.errors:
        raise ConfigError(f"--{fault.param} {fault.message}, got {given!r}")
    if track == SEPARATE:
        raise ConfigError("--track must be auto, mix or a number for live audio, got 'separate'")
    return track


async def _stream(given: argparse.Namespace, options: Mapping[str, Any], key: str) -> None:
    async with (
        Client(given.server, key) as client,
        client.live(encoding=ENCODING, sample_rate=RATE, **options) as stream,
    ):
        sending = asyncio.create_task(_send(stream, given.source, given.track))
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, sending.cancel)
        changed = await print_events(stream.events())
        sending.cancel()  # if the session has ended before the audio
        with suppress(asyncio.CancelledError):
            await sending
        record = await client.complete(stream.job_id)
        if changed:
            print("\nNow that all is heard, the speakers are:\n")
            print((await client.output(record, "txt")).decode(), end="")


async def _send(stream: LiveStream, source: str, track: TrackChoice) -> None:
    """Send a recording or the microphone, until it is cancelled, and finish the session."""
    try:
        async with aclosing(_microphone() if source == "mic" else _play(Path(source), track)) as frames:
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
        chosen_track(isolation, path, DecodeLimits(), VoiceDetector(), track=track) as heard,
        ThreadPoolExecutor(1) as threads,
    ):
        for note in heard.choice.notes:
            print(f"scribewire: note: {note.partition(': ')[2]}", file=sys.stderr)
        async with on_thread(heard.samples, threads) as pieces:
            async for piece in pieces:
                for at in range(0, len(piece), PACKET):
                    frame = piece[at : at + PACKET]
                    sent += len(frame)
                    await asyncio.sleep(max(0.0, began + sent / RATE - clock.time()))
                    yield frame


async def _microphone() -> AsyncGenerator[Samples]:
    """Yield the audio of the default microphone, with a recording program of the system."""
    command = next((command for command in RECORDERS if shutil.which(command[0])), None)
    if command is None:
        names = ", ".join(command[0] for command in RECORDERS)
        raise ConfigError(f"mic needs one of the programs {names}, got none; or open the server's page in a browser")
    recorder = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert recorder.stdout is not None
    try:
        while data := await recorder.stdout.read(2 * PACKET):
            yield np.frombuffer(data[: len(data) // 2 * 2], "<i2").astype(np.float32) / np.float32(32768)
    finally:
        recorder.terminate()
        await recorder.wait()


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
                    print(f"scribewire: note: {event['message']}", file=sys.stderr)
                case "segment":
                    console.print(Text(f"{event['speaker']}: " if "speaker" in event else "") + Text(event["text"]))
                    printed += [event.get("speaker")] * len(said)
                    said.clear()
                case "speakers.revised" if event["final"]:
                    changed = any(
                        {*printed[run["first"] : run["last"] + 1]} != {run["speaker"]} for run in event["words"]
                    )
    return changed
