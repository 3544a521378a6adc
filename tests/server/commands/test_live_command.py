"""Tests of what `scribewire live` sends and prints."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.audio import RATE
from pipeline.ingest.raw_audio import PcmDecoder
from pipeline.recognition.engines.scripted import SCRIPT
from server.commands.live import ENCODING, encode, print_events
from tests.server.running import ROOT, SPEECH, Server, environment
from tests.waiting import until

SILENCE = f"""#!{sys.executable}
import sys, time
while sys.stdout.buffer.write(bytes(3200)):
    sys.stdout.flush()
    time.sleep(0.1)
"""
"""A recording program whose microphone is silent."""


def test_a_quiet_recording_reaches_the_server_as_it_is():
    sound = np.random.default_rng(7).uniform(-2e-3, 2e-3, RATE).astype(np.float32)
    assert np.array_equal(PcmDecoder(ENCODING, rate=RATE, channels=1).decode(encode(sound)), sound)


async def conversation(*final: tuple[int, int, str]) -> AsyncIterator[dict[str, Any]]:
    """Yield the events of a session in which S1 says four words, with these speakers at the end."""
    for number, word in enumerate(("Is", "it?", "It", "is.")):
        yield {"type": "word", "index": number, "word": word}
        if number % 2:
            yield {"type": "segment", "text": "Is it?" if number == 1 else "It is.", "speaker": "S1"}
    runs = [{"first": first, "last": last, "speaker": speaker} for first, last, speaker in final]
    yield {"type": "speakers.revised", "words": runs, "final": True}
    yield {"type": "job.completed"}


async def test_whoever_reads_lines_with_another_speaker_is_given_the_right_ones(capsys):
    assert not await print_events(conversation((0, 3, "S1")))
    assert capsys.readouterr().out == "S1: Is it?\nS1: It is.\n"
    assert await print_events(conversation((0, 1, "S1"), (2, 3, "S2")))
    assert await print_events(conversation((0, 0, "S1"), (1, 1, "S2"), (2, 3, "S1")))


@contextmanager
def live_command(server: Server, source: Path | str, *words: str, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """Run `scribewire live`, for which programs of *folder* come first."""
    variables = environment(server.data_dir, **server.variables)
    with subprocess.Popen(
        [sys.executable, "-m", "server", "live", str(source), "--server", server.base, *words],
        cwd=ROOT,
        env={**variables, "PATH": f"{folder}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        try:
            yield command
        finally:
            command.kill()


def newest_job(server: Server) -> dict[str, Any]:
    """Return the newest session of the operator once it has audio of 2 s."""
    key = (server.data_dir / "operator-key").read_text().strip()
    with server.client(key) as client:

        def look() -> dict[str, Any] | None:
            newest = client.get("/v1/jobs").json()["data"][:1]
            jobs = [client.get(f"/v1/jobs/{job['job_id']}").json() for job in newest if job["status"] == "processing"]
            return next((job for job in jobs if job["live"]["received_seconds"] > 2), None)

        return until(look)


def test_ctrl_c_ends_the_microphone_and_every_word_is_printed(small_server, tmp_path):
    recorder = tmp_path / "arecord"
    recorder.write_text(SILENCE)
    recorder.chmod(0o755)
    with live_command(small_server, "mic", folder=tmp_path) as command:
        newest_job(small_server)
        command.send_signal(signal.SIGINT)
        printed, errors = command.communicate(timeout=30)
    assert (command.returncode, errors) == (0, "")
    words = printed.split()
    assert len(words) > 3
    assert words == [SCRIPT[number % len(SCRIPT)] for number in range(len(words))]


def test_a_session_that_somebody_cancels_ends_the_command_at_once(small_server, tmp_path):
    with live_command(small_server, SPEECH / "human" / "two_cities.flac", folder=tmp_path) as command:
        job = newest_job(small_server)
        key = (small_server.data_dir / "operator-key").read_text().strip()
        with small_server.client(key) as client:
            assert client.post(f"/v1/jobs/{job['job_id']}/cancel").status_code == 202
        _, errors = command.communicate(timeout=15)
    assert (command.returncode, errors) == (1, "scribewire: Canceled (job_not_completed).\n")


BROKEN = f"""#!{sys.executable}
import sys
sys.exit("audio open error: No such file or directory")
"""
"""A recording program without a microphone."""

LISTING = f"""#!{sys.executable}
import sys, time
if sys.argv[1] == "-l":
    print("card 1: Cam [USB Camera], device 0: USB Audio [USB Audio]")
elif sys.argv[-2:] == ["-D", "plughw:1,0"]:
    while sys.stdout.buffer.write(bytes(3200)):
        sys.stdout.flush()
        time.sleep(0.1)
"""
"""A recording program with one microphone, which has to be chosen."""


def recorder(folder: Path, program: str) -> Path:
    path = folder / "arecord"
    path.write_text(program)
    path.chmod(0o755)
    return folder


def count_jobs(server: Server) -> int:
    return len(server.cli("jobs", "list", "--json", "--limit", "1000", "--server", server.base).splitlines())


def test_without_a_microphone_there_is_no_session(small_server, tmp_path):
    before = count_jobs(small_server)
    with live_command(small_server, "mic", folder=recorder(tmp_path, BROKEN)) as command:
        printed, errors = command.communicate(timeout=60)
    assert (command.returncode, printed) == (2, "")
    assert errors.startswith("scribewire: There is no microphone that arecord, parec or rec can read. Connect one,")
    assert errors.endswith("arecord said: audio open error: No such file or directory.\n")
    assert count_jobs(small_server) == before


def test_microphones_are_listed_and_one_can_be_chosen(small_server, tmp_path):
    folder = recorder(tmp_path, LISTING)
    with live_command(small_server, "--list-devices", folder=folder) as command:
        printed, errors = command.communicate(timeout=60)
    assert (command.returncode, printed, errors) == (0, "plughw:1,0  USB Camera\n", "")
    with live_command(small_server, "mic", "--device", "hw:7", folder=folder) as command:
        _, errors = command.communicate(timeout=60)
    assert (command.returncode, errors.partition(",")[0]) == (
        2,
        "scribewire: --device must be one that `scribewire live --list-devices` names",
    )
    with live_command(small_server, "mic", "--device", "plughw:1,0", folder=folder) as command:
        newest_job(small_server)
        command.send_signal(signal.SIGINT)
        command.communicate(timeout=30)
    assert command.returncode == 0
