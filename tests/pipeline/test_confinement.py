"""What a decoding process can still do after it has given up its rights, tried in real processes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import InvalidAudio
from pipeline.ingest import seccomp
from pipeline.ingest.decode import recording
from pipeline.ingest.input_formats import DecodeLimits
from pipeline.ingest.isolation import Isolation, _error_of_exit
from pipeline.ingest.seccomp import ALLOWED, ARCHITECTURES, FATAL, MEMORY, STOPPED_BY_FILTER, program
from tests.pipeline.sounds import CLIP, FFMPEG_ALONE, LOSSLESS, LOSSY, encode_audio, encode_with_ffmpeg, read
from tests.processes import ROOT, output_of

ANY = DecodeLimits()

MISSING = seccomp.missing_support()
needs_filter = pytest.mark.skipif(MISSING is not None, reason=f"no filter here: {MISSING}")

ATTEMPT = """
import ctypes, errno, mmap, os, resource, signal, socket, sys, threading
from pipeline.ingest import cell
from pipeline.ingest.input_formats import DecodeLimits
from pipeline.ingest.messages import DecodeOptions

attempt, precious, victim, secret = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
held = os.open(precious, os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)

class Piece(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("length", ctypes.c_size_t))

stolen = ctypes.create_string_buffer(16)
here, there = Piece(ctypes.addressof(stolen), 16), Piece(secret, 16)
libc.process_vm_readv, libc.ptrace, libc.prctl  # looked up before it is too late

def read_memory():
    if libc.process_vm_readv(victim, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) < 0:
        raise OSError(ctypes.get_errno(), "process_vm_readv")
    print(stolen.raw)

def trace():
    if libc.ptrace(16, victim, 0, 0) < 0:  # PTRACE_ATTACH
        raise OSError(ctypes.get_errno(), "ptrace")

def fork():
    if os.fork() == 0:
        os._exit(0)

order = DecodeOptions(limits=DecodeLimits(longest_s=10), live=False, stall_s=1, cpu_s=70)
cell._confine(order, os.getppid(), 1 << 30)
try:
    eval(attempt)
    print("allowed")
except (OSError, RuntimeError, ValueError) as error:  # Python has its own errors for threads and limits
    print(errno.errorcode[getattr(error, "errno", errno.EPERM)])
"""


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "scribewire.db"
    path.write_bytes(b"all the jobs")
    return path


@pytest.fixture(scope="module")
def isolation() -> Iterator[Isolation]:
    with Isolation() as isolation:
        yield isolation


SECRET = np.frombuffer(b"whsec_0123456789", np.uint8)
"""Bytes in the memory of this process, whose address is known."""


def run_attempt(what: str, precious: Path) -> tuple[int, str]:
    """Let a confined process try *what*. Returns its exit code and what it printed."""
    place = SECRET.__array_interface__["data"][0]
    words = [sys.executable, "-c", ATTEMPT, what, str(precious), str(os.getpid()), str(place)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert precious.read_bytes() == b"all the jobs"
    return done.returncode, done.stdout.strip()


@needs_filter
@pytest.mark.parametrize(
    "attempt",
    [
        "os.truncate(precious, 0)",
        "os.ftruncate(held, 0)",
        "os.unlink(precious)",
        "os.rename(precious, precious + '.gone')",
        "os.kill(victim, 0)",
        "read_memory()",
        "trace()",
        "os.execv('/bin/true', ['true'])",
        "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)",
    ],
)
def test_what_only_an_exploit_does_ends_the_process(attempt, precious):
    assert run_attempt(attempt, precious) == (STOPPED_BY_FILTER, "")


@needs_filter
@pytest.mark.parametrize(
    "attempt",
    [
        "open('/etc/hostname')",
        "os.stat(precious)",
        "os.listdir('/')",
        "os.mkdir(precious + '.folder')",
        "os.chmod(precious, 0o777)",
        "os.symlink(precious, precious + '.link')",
        "socket.socket()",
        "os.pipe()",
        "fork()",
        "threading.Thread(target=print).start()",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))",
        "signal.signal(signal.SIGXCPU, signal.SIG_IGN)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGXCPU])",
    ],
)
def test_what_libraries_may_try_in_passing_is_refused(attempt, precious):
    assert run_attempt(attempt, precious) == (0, "EPERM")


def test_a_file_that_is_held_open_does_not_grow_on_any_system(precious):
    assert run_attempt("os.lseek(held, 0, 2), os.write(held, b'x')", precious) == (0, "EFBIG")


def test_where_calls_cannot_be_filtered_nothing_can_be_opened_all_the_same(precious):
    program = ATTEMPT.replace("cell._confine", "cell.seccomp.missing_support = lambda: 'no seccomp'; cell._confine")
    for attempt in ("open('/etc/hostname')", "socket.socket()", "os.pipe()"):
        assert output_of(program, attempt, str(precious), "0", "0") == "EMFILE"


def test_the_limits_hold_on_any_system(precious):
    """Read where there is no filter, which refuses even that."""
    program = ATTEMPT.replace("cell._confine", "cell.seccomp.missing_support = lambda: 'no seccomp'; cell._confine")
    names = ("CORE", "FSIZE", "NOFILE", "NPROC", "CPU", *(["AS"] if sys.platform == "linux" else []))
    attempt = f"print([resource.getrlimit(getattr(resource, 'RLIMIT_' + name)) for name in {names}])"
    limits, done = output_of(program, attempt, str(precious), "0", "0").splitlines()
    memory = [(1 << 30, 1 << 30)] * (sys.platform == "linux")
    assert (limits, done) == (str([(0, 0)] * 4 + [(70, 75), *memory]), "allowed")


STOPPED = """
import os, socket, sys
from pipeline.ingest import cell
from pipeline.ingest.input_formats import DecodeLimits
from pipeline.ingest.messages import DecodeOptions

cell._decode = lambda *_: os.unlink(sys.argv[1])  # a decoder that a file has taken over
inner, _ = socket.socketpair()
order = {"limits": {}, "live": False, "stall_s": 1.0, "cpu_s": None, "raw": None}
pid = cell._fork(order, [os.open(sys.argv[1], os.O_RDONLY), os.dup(1)], inner, 1 << 30)["pid"]
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@needs_filter
def test_a_decoder_that_the_filter_stopped_is_reported_as_such(precious, caplog):
    code = int(output_of(STOPPED, str(precious)))
    assert precious.exists()
    error = _error_of_exit(code)
    assert isinstance(error, InvalidAudio)
    assert not error.retryable
    assert "stopped" in str(error)
    assert "forbidden system call" in caplog.text


@needs_filter
def test_a_real_decoder_runs_under_the_filter(isolation):
    with isolation.decoding(CLIP, ANY) as audio:
        status = Path(f"/proc/{audio._process._pid}/status").read_text()
    assert "Seccomp:\t2\n" in status
    assert "NoNewPrivs:\t1\n" in status


def both_ways(isolation: Isolation, path: Path) -> None:
    """A file comes out of a confined process as it does without one."""
    with isolation.decoding(path, ANY) as audio:
        confined = np.concatenate(list(audio))
    with path.open("rb", buffering=0) as file, recording(file, ANY) as free:
        assert np.array_equal(confined, np.concatenate(list(free)))
        assert len(confined) > 0
        assert audio.probe == free.probe


@pytest.mark.parametrize(("container", "codec", "sample_format"), LOSSLESS)
def test_every_lossless_format_is_decoded_under_the_filter(isolation, tmp_path, container, codec, sample_format):
    path = tmp_path / "file"
    path.write_bytes(encode_audio(read(CLIP), container, codec, sample_format=sample_format))
    both_ways(isolation, path)


@pytest.mark.parametrize("made", LOSSY, ids=lambda made: f"{made[0]}-{made[1]}")
def test_every_lossy_format_is_decoded_under_the_filter(isolation, tmp_path, made):
    container, codec, rate, layout, _ = made
    path = tmp_path / "file"
    bit_rate = 128_000 if codec.startswith("wma") else None
    path.write_bytes(encode_audio(read(CLIP), container, codec, rate=rate, layout=layout, bit_rate=bit_rate))
    both_ways(isolation, path)


@pytest.mark.parametrize(("suffix", "how"), FFMPEG_ALONE)
def test_formats_that_only_the_ffmpeg_program_writes_are_decoded_under_the_filter(isolation, tmp_path, suffix, how):
    path = tmp_path / "file"
    path.write_bytes(encode_with_ffmpeg(tmp_path, suffix, how))
    both_ways(isolation, path)


MEMORY_OF_ANOTHER = """
import ctypes, os, sys
from pipeline.ingest import seccomp
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))  # PR_GET_DUMPABLE
seccomp.close_memory()
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_a_process_can_close_its_memory_to_others_of_its_user():
    assert output_of(MEMORY_OF_ANOTHER).split() == ["1", "0"]


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_the_numbers_of_calls_are_those_of_the_kernel(machine):
    """No number stands for two calls, and the program asks for each of them."""
    calls = [*ALLOWED.values(), *MEMORY.values(), *FATAL.values()]
    numbers = [number for call in calls if (number := getattr(call, machine)) is not None]
    assert len(numbers) == len(set(numbers))
    code = program(machine)
    asked = {seccomp._INSTRUCTION.unpack_from(code, at)[3] for at in range(0, len(code), 8)}
    assert set(numbers) < asked
