"""Tests of isolation.py with real processes: limits, hanging and crashing decoders, memory."""

import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pipeline.audio import RATE, position
from pipeline.errors import DecoderUnavailable, DecodeTimeout, EmptyAudio, InvalidAudio, UndecodableAudio
from pipeline.ingest.decode import recording
from pipeline.ingest.input_formats import DecodeLimits
from pipeline.ingest.isolation import Decoding, Isolation
from pipeline.ingest.notes import TRUNCATED
from tests.pipeline.sounds import CLIP, codes, encode_audio, read
from tests.processes import has_ended, output_of
from tests.waiting import until

HALF_AN_HOUR = DecodeLimits(longest_s=1800)


@pytest.fixture(scope="module")
def isolation() -> Iterator[Isolation]:
    with Isolation() as isolation:
        yield isolation


@pytest.fixture(scope="module")
def long_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a minute of speech, far more than the pipe holds."""
    path = tmp_path_factory.mktemp("sounds") / "long"
    path.write_bytes(encode_audio(np.tile(read(CLIP), 5), "flac", "flac"))
    return path


def pid_of(audio: Decoding) -> int:
    return audio._process._pid


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to see whether processes are gone")


def test_a_file_comes_out_as_it_does_without_isolation(isolation, tmp_path):
    path = tmp_path / "renamed.txt"
    path.write_bytes(encode_audio(read(CLIP), "mp3", "libmp3lame", rate=44100)[:-9000])
    with isolation.decoding(path, HALF_AN_HOUR) as audio:
        apart = np.concatenate(list(audio))
    with path.open("rb", buffering=0) as file, recording(file, HALF_AN_HOUR) as here:
        assert np.array_equal(apart, np.concatenate(list(here)))
        assert audio.probe == here.probe
        assert audio.notes == here.notes
        assert codes(audio.notes) == (TRUNCATED,)
    assert isolation.probe(path, HALF_AN_HOUR) == here.probe


def test_a_missing_file_is_the_callers_error(isolation, tmp_path):
    with pytest.raises(FileNotFoundError):
        isolation.probe(tmp_path / "none", HALF_AN_HOUR)


@needs_proc
def test_leaving_early_kills_the_decoder_at_once(isolation, long_file):
    with isolation.decoding(long_file, HALF_AN_HOUR) as audio:
        next(iter(audio))
        pid = pid_of(audio)
        assert not has_ended(pid)
    assert has_ended(pid)


@pytest.mark.parametrize("blow", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS])
def test_a_crash_of_the_decoder_is_an_error_of_that_file_alone(isolation, long_file, blow):
    with isolation.decoding(long_file, HALF_AN_HOUR) as other:
        with isolation.decoding(long_file, HALF_AN_HOUR) as audio:
            os.kill(pid_of(audio), blow)
            with pytest.raises(InvalidAudio, match=blow.name):
                list(audio)
        assert sum(map(len, other)) == 5 * len(read(CLIP))


def test_a_decoder_killed_from_outside_is_not_the_files_fault(isolation, long_file):
    with isolation.decoding(long_file, HALF_AN_HOUR) as audio:
        os.kill(pid_of(audio), signal.SIGKILL)
        with pytest.raises(DecoderUnavailable) as caught:
            list(audio)
    assert caught.value.retryable


def test_a_decoder_that_stands_still_is_ended(isolation, long_file):
    with isolation.decoding(long_file, HALF_AN_HOUR) as audio:
        os.kill(pid_of(audio), signal.SIGSTOP)
        audio._wait_s = 0.3
        with pytest.raises(DecodeTimeout):
            list(audio)


def test_a_reader_that_takes_its_time_is_no_stall(long_file):
    """Time counts only while the server waits for audio."""
    with Isolation(stall_s=2.0) as isolation, isolation.decoding(long_file, HALF_AN_HOUR) as audio:
        chunks = iter(audio)
        heard = len(next(chunks))
        time.sleep(2.5)
        assert heard + sum(map(len, chunks)) == 5 * len(read(CLIP))


def test_a_decoder_that_turns_in_circles_is_ended_also_in_a_live_stream(tmp_path):
    """Some FLAC and then endless zeros: the decoder looks for a frame as long as bytes come."""
    beginning = encode_audio(read(CLIP), "flac", "flac")[:20_000]
    endless = sparse(tmp_path / "endless", beginning)
    with Isolation(stall_s=0.5) as isolation:
        with pytest.raises(DecodeTimeout), isolation.decoding(endless, HALF_AN_HOUR) as audio:
            list(audio)
        with isolation.live(DecodeLimits()) as live:

            def feed() -> None:
                live.feed(beginning)
                while live.feed(bytes(65_536)):
                    pass

            feeder = threading.Thread(target=feed)
            feeder.start()
            with pytest.raises(DecodeTimeout):
                list(live)
            feeder.join()


def sparse(path: Path, beginning: bytes) -> Path:
    """A file of *beginning* and then zeros without end, in which a FLAC decoder looks for frames for ever."""
    path.write_bytes(beginning)
    os.truncate(path, 1 << 40)
    return path


def test_the_limit_of_processor_time_is_told_apart_from_a_killing(tmp_path):
    endless = sparse(tmp_path / "endless", encode_audio(read(CLIP), "flac", "flac")[:20_000])
    limits = DecodeLimits(longest_s=1.5, first_frame_cpu_s=60)  # 2 s of processor time in all
    with (
        Isolation(spare_cpu_s=0) as isolation,
        pytest.raises(DecodeTimeout, match="too much processor time") as caught,
        isolation.decoding(endless, limits) as audio,
    ):
        list(audio)
    assert not caught.value.retryable


def test_a_file_that_keeps_the_decoder_from_its_first_frame_is_given_up(tmp_path):
    endless = sparse(tmp_path / "endless", encode_audio(read(CLIP), "flac", "flac")[:100])
    with Isolation() as isolation, pytest.raises(DecodeTimeout, match="too much processor time"):
        isolation.probe(endless, DecodeLimits(first_frame_cpu_s=0.3))


def test_a_live_stream_may_pause_longer_than_a_stall_and_gives_everything():
    data = encode_audio(read(CLIP), "webm", "libopus", rate=48000)
    with Isolation(stall_s=0.3) as isolation, isolation.live(DecodeLimits()) as audio:

        def feed() -> None:
            assert audio.feed(data[:20_000])
            time.sleep(0.9)
            assert audio.feed(data[20_000:])
            audio.finish()

        feeder = threading.Thread(target=feed)
        feeder.start()
        samples = np.concatenate(list(audio))
        feeder.join()
        assert audio.probe.codec == "opus"
    assert len(samples) == pytest.approx(len(read(CLIP)), abs=position(0.03))


def test_a_live_decoder_can_be_killed_while_another_thread_waits_for_it(isolation):
    with isolation.live(DecodeLimits()) as audio:
        killer = threading.Timer(0.3, audio.kill)
        killer.start()
        with pytest.raises(DecoderUnavailable):
            list(audio)
        killer.join()
        assert not audio.feed(b"more")


def test_errors_of_a_live_stream_are_raised_where_it_is_read(isolation):
    with isolation.live(DecodeLimits()) as audio:
        audio.feed(b"no audio at all " * 1000)
        audio.finish()
        with pytest.raises(UndecodableAudio):
            list(audio)
    with isolation.live(DecodeLimits()) as audio:
        audio.finish()
        with pytest.raises(EmptyAudio):
            list(audio)


@needs_proc
def test_when_the_forking_process_dies_its_decoders_do_and_the_next_file_gets_a_new_one(long_file):
    with Isolation() as isolation:
        with isolation.decoding(long_file, HALF_AN_HOUR) as audio:
            first, decoder = isolation._cell._process.pid, pid_of(audio)
            os.kill(first, signal.SIGKILL)
            with pytest.raises(DecoderUnavailable):
                list(audio)
            until(lambda: has_ended(decoder))
        assert isolation.probe(long_file, HALF_AN_HOUR).format == "flac"


def test_where_no_process_can_be_had_the_answer_says_so_and_nothing_is_left_open():
    """Limits of processes do not apply to root, so the forking process gets a fork() that fails."""
    script = """
        import errno, os, socket, sys
        from pipeline.ingest import cell
        def fork():
            raise OSError(errno.EAGAIN, "no more processes")
        os.fork = fork
        inner, outer = socket.socketpair()
        socket.send_fds(outer, [b'{"start": {}}\\n'], [os.dup(1), os.dup(1)])
        outer.shutdown(socket.SHUT_WR)
        before = len(os.listdir("/dev/fd"))
        cell.serve(inner)
        print(outer.recv(99).decode(), before - len(os.listdir("/dev/fd")))
    """
    assert output_of(textwrap.dedent(script)).split() == ["{}", "0"]


def test_closing_ends_what_is_under_way_and_the_next_file_starts_anew(long_file):
    with Isolation() as isolation:
        with isolation.decoding(long_file, HALF_AN_HOUR) as audio:
            isolation.close()
            with pytest.raises(DecoderUnavailable):
                list(audio)
        isolation.close()
        assert isolation.probe(long_file, HALF_AN_HOUR).format == "flac"


PARENT = """
import signal, sys, time
from pathlib import Path
from pipeline.ingest.input_formats import DecodeLimits
from pipeline.ingest.isolation import Isolation

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts tests in the background ignores it
isolation = Isolation()
with isolation.decoding(Path(sys.argv[1]), DecodeLimits()) as audio, isolation.live(DecodeLimits()) as live:
    print(isolation._cell._process.pid, audio._process._pid, live._process._pid, flush=True)
    time.sleep(60)
"""


@needs_proc
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGINT])
def test_no_process_is_left_when_the_server_dies(long_file, blow):
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(long_file)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as parent:
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 3
        assert not any(map(has_ended, pids))
        parent.send_signal(blow)
    until(lambda: all(map(has_ended, pids)))


@needs_proc
def test_the_decoding_process_knows_no_secret_of_the_server(monkeypatch, long_file):
    monkeypatch.setenv("SCRIBEWIRE_SECRET", "whsec_0123")
    with Isolation() as isolation, isolation.decoding(long_file, HALF_AN_HOUR) as audio:
        assert b"whsec_0123" not in Path(f"/proc/{pid_of(audio)}/environ").read_bytes()


def test_a_film_with_its_pictures_and_subtitles_finds_everything_loaded(isolation, tmp_path):
    """A confined process cannot load the modules that PyAV loads at the first film or subtitle."""
    path = tmp_path / "film"
    path.write_bytes(encode_audio(read(CLIP), "matroska", "aac", rate=48000, film=True))
    assert isolation.probe(path, HALF_AN_HOUR).codec == "aac"
    loaded = output_of("import sys, pipeline.ingest.cell; print(*sys.modules)").split()
    for kind in ("video", "audio", "subtitles"):
        assert {f"av.{kind}.stream", f"av.{kind}.codeccontext"} <= set(loaded)


CONSUMER = """
import resource, sys
from pathlib import Path
from pipeline.ingest.input_formats import DecodeLimits
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.speech import DecodeJob
from pipeline.ingest.speech import packer_of

def loud(windows):
    return [float(abs(window).max() > 0.01) for window in windows]

def peak(pid):
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0])

def chunks(audio):
    for number, chunk in enumerate(audio):
        if number % 20 == 0:
            peaks.append(peak(audio._process._pid))
        yield chunk

peaks = []
with Isolation() as isolation, isolation.decoding(Path(sys.argv[1]), DecodeLimits(longest_s=7200)) as audio:
    packer = packer_of(loud)
    items = (item for chunk in chunks(audio) for item in packer.pack(chunk))
    jobs = sum(isinstance(item, DecodeJob) for item in (*items, *packer.flush()))
    print(peaks[-1], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, jobs)
"""


@needs_proc
def test_an_hour_takes_no_more_memory_than_five_minutes(tmp_path):
    """Compares the peak memory of the decoding process and of the one that packs its audio into jobs."""
    minute = np.concatenate([read(CLIP), np.zeros(60 * RATE - len(read(CLIP)), np.float32)])
    found = []
    for minutes in (5, 60):
        path = tmp_path / f"{minutes}.flac"
        with soundfile.SoundFile(path, "w", RATE, 1, "PCM_16") as file:
            for _ in range(minutes):
                file.write(minute)
        found.append([int(word) for word in output_of(CONSUMER, str(path)).split()])
    (few_decoder, few_consumer, few_jobs), (decoder, consumer, jobs) = found
    assert jobs == 12 * few_jobs
    assert decoder < 1.2 * few_decoder
    assert consumer < 1.2 * few_consumer


def test_limits_and_descriptors_of_this_process_are_as_before(isolation, long_file):
    isolation.start()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = len(list(Path("/dev/fd").iterdir()))
    isolation.probe(long_file, HALF_AN_HOUR)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
    assert len(list(Path("/dev/fd").iterdir())) == descriptors
