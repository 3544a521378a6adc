"""Settings of this process for CTranslate2: instruction set, memory, threads and CUDA's libraries.

Call prepare() before ctranslate2 is imported, as load.py does. Functions that do not apply to this machine do nothing.
"""

import ctypes
import os
import platform
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

MAX_THREADS = 8
"""The most threads of one call. CTranslate2's small matrices cannot use more."""

MAX_REPLICAS = 4
"""The most calls at the same time. Each keeps its own memory."""

# (size in bytes, threads): a call has so many threads if model.bin is smaller than this size
_THREADS = ((200_000_000, 1), (600_000_000, 2), (1_700_000_000, 4))

# Constants of glibc's <malloc.h>. CTranslate2's CPU allocator calls posix_memalign for every buffer. By default glibc
# maps and unmaps each large buffer, which costs 78,000 page faults for one window of 30 s. So this process uses one
# arena, maps no buffers, never gives memory back, and lets the heap grow in large steps.
_M_ARENA_MAX, _M_MMAP_MAX, _M_TRIM_THRESHOLD, _M_TOP_PAD = -8, -4, -1, -2
_MALLOC = ((_M_ARENA_MAX, 1), (_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_TOP_PAD, 8 * 2**20))

# Packages, and the first letters of their libraries.
_CUDA_PACKAGES = {"nvidia-cublas-cu12": "libcublas", "nvidia-cudnn-cu12": "libcudnn"}
_CUDA_LIBRARIES = ("libcublas.so.12", "libcudnn.so.9")  # the libraries that CTranslate2 loads

# CTranslate2's AVX512 code needs all of these.
_AVX512 = frozenset({"avx512f", "avx512cd", "avx512vl", "avx512bw", "avx512dq"})


def prepare() -> None:
    """Choose AVX512 for CTranslate2 if the processor has it. Calling it again does nothing more."""
    if _cpu_flags() >= _AVX512:
        os.environ.setdefault("CT2_FORCE_CPU_ISA", "AVX512")  # CTranslate2 never chooses it by itself


def keep_memory() -> None:
    """Keep the memory that CTranslate2 frees from now on for its next call. Call it after a model is loaded.

    Loading a model frees large buffers between others that stay. Called before, this would keep those gaps unused.
    """
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return
    library = ctypes.CDLL(None)
    library.malloc_trim(0)
    for parameter, value in _MALLOC:
        library.mallopt(parameter, value)  # returns 0 if it is refused: then calls are only slower


def cores() -> int:
    """Return how many processor cores this process may use."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return max(1, min(affinity, _quota()))


def thread_count(wanted: int | None, model_bytes: int) -> int:
    """Return *wanted*, or how many threads one call of a model of this size can use well.

    Small matrices gain little from a second thread, so a small model answers several calls at once instead. One core is
    left to the event loop, voice detection and decoding. The threads of a call wait for each other, so one thread that
    shares its core with other work slows all of them down.
    """
    if wanted is not None:
        return wanted
    most = next((threads for below, threads in _THREADS if model_bytes < below), MAX_THREADS)
    return max(1, min(cores() - 1, most))


def replica_count(cores: int, threads: int) -> int:
    """Return how many calls with *threads* threads each can run at the same time."""
    return max(1, min(cores // threads, MAX_REPLICAS))


def load_cuda() -> bool:
    """Load CUDA's libraries, also those that pip has installed. Return whether all of them are there.

    CTranslate2 later opens them by name. The system then finds libraries that are loaded, but does not look in the
    folders of pip.
    """
    for package, beginning in _CUDA_PACKAGES.items():
        with suppress(PackageNotFoundError, OSError):  # a missing library is noticed below
            for file in sorted(files(package) or (), key=str):
                if file.name.startswith(beginning) and ".so." in file.name:
                    ctypes.CDLL(str(file.locate()), mode=ctypes.RTLD_GLOBAL)
    try:
        for library in _CUDA_LIBRARIES:
            ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _cpu_flags() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), []))


def _quota() -> int:
    """Return the cores that the control group of a container allows, rounded up; many if it sets no limit."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return sys.maxsize
    return sys.maxsize if quota == "max" else -(-int(quota) // int(period))
