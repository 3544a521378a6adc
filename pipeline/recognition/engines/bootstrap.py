"""What must be set in this process before CTranslate2 is loaded into it, and what it needs and how it is treated after.

Everything here is a cheap no-op where it does not apply. Call prepare() first, import ctranslate2 after.
"""

import ctypes
import os
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

MAX_THREADS = 8
"""CTranslate2's small matrices do not fill more."""

MAX_REPLICAS = 4
"""Each keeps the memory of its calls."""

_THREADS = (
    (200 * 10**6, 1),
    (600 * 10**6, 2),
    (1_700 * 10**6, 4),
)  # of a call, for a model.bin of less than so many bytes
_NO_LIMIT = 1024  # cores
_POLITE = 10  # nice value of inference threads: the event loop goes first

# glibc's <malloc.h>. CTranslate2's CPU allocator is bare posix_memalign: by default every large buffer is mapped and
# unmapped again, 78,000 page faults for one 30 s encode. So: one arena, no mmap, never trim, grow in large steps.
_M_ARENA_MAX, _M_MMAP_MAX, _M_TRIM_THRESHOLD, _M_TOP_PAD = -8, -4, -1, -2
_MALLOC = ((_M_ARENA_MAX, 1), (_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_TOP_PAD, 8 * 2**20))

_CUDA_PACKAGES = {"nvidia-cublas-cu12": "libcublas", "nvidia-cudnn-cu12": "libcudnn"}  # and how their libraries begin
_CUDA_LIBRARIES = ("libcublas.so.12", "libcudnn.so.9")  # what CTranslate2 asks for

_AVX512 = frozenset({"avx512f", "avx512cd", "avx512vl", "avx512bw", "avx512dq"})  # what CTranslate2 compiles for


def prepare() -> None:
    """The instruction set is chosen for CTranslate2. Calling it again does nothing more."""
    if _cpu_flags() >= _AVX512:
        os.environ.setdefault("CT2_FORCE_CPU_ISA", "AVX512")  # never chosen by itself


def keep_memory() -> None:
    """From now on memory that CTranslate2 frees is kept for its next call. To be called after a model was loaded.

    Loading frees large buffers between others that stay: they would be kept for good.
    """
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return
    library = ctypes.CDLL(None)
    library.malloc_trim(0)
    for parameter, value in _MALLOC:
        library.mallopt(parameter, value)  # answers 0 where it is refused: then memory is only handled more slowly


def cores() -> int:
    """How many processor cores this process may use."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return max(1, min(affinity, _quota()))


def thread_count(wanted: int | None, model_bytes: int) -> int:
    """*wanted*, or as many threads as a call of a model of this size can use well.

    Small matrices gain little from a second thread, so a small model rather answers several calls at once. One core is
    left to the event loop, voice detection and decoding: the threads of a call wait for each other, and one that has to
    share its core holds them all up.
    """
    if wanted is not None:
        return wanted
    most = next((threads for below, threads in _THREADS if model_bytes < below), MAX_THREADS)
    return max(1, min(cores() - 1, most))


def replica_count(cores: int, threads: int) -> int:
    """How many calls of so many threads each can run at the same time."""
    return max(1, min(cores // threads, MAX_REPLICAS))


def load_cuda() -> bool:
    """Whether CUDA's libraries are there; those that pip installed are loaded from where they lie.

    CTranslate2 asks the system for them by name, once it computes: it finds what is loaded, not what lies elsewhere.
    """
    for package, beginning in _CUDA_PACKAGES.items():
        with suppress(PackageNotFoundError, OSError):  # what is missing then is seen below
            for file in sorted(files(package) or (), key=str):
                if file.name.startswith(beginning) and ".so." in file.name:
                    ctypes.CDLL(str(file.locate()), mode=ctypes.RTLD_GLOBAL)
    try:
        for library in _CUDA_LIBRARIES:
            ctypes.CDLL(library)
    except OSError:
        return False
    return True


@contextmanager
def polite_threads() -> Iterator[None]:
    """Threads that a library starts inside the block run at nice +10, and so do those they start later (Linux).

    Python's own threads are left alone: one that holds the interpreter's lock must not be pushed aside.
    """
    before = _thread_ids()
    yield
    ours = {thread.native_id for thread in threading.enumerate()}
    for thread_id in _thread_ids() - before - ours:
        try:
            os.setpriority(os.PRIO_PROCESS, thread_id, _POLITE)
        except ProcessLookupError:
            continue  # it has already ended


def _cpu_flags() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), []))


def _thread_ids() -> set[int]:
    try:
        return {int(name) for name in os.listdir("/proc/self/task")}  # noqa: PTH208  (names, not paths)
    except OSError:
        return set()


def _quota() -> int:
    """Cores that the control group (a container) grants, rounded up; very many where it sets no limit."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return _NO_LIMIT
    return _NO_LIMIT if quota == "max" else -(-int(quota) // int(period))
