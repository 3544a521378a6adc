"""A filter for the system calls of the decoding process.

A file that exploits a bug of a decoder runs its own code with the server's user id. Linux lets a process give up system
calls for good (seccomp). The kernel then runs a small program before each call, which sees the number of the call and
its arguments, and says what happens. install() writes that program from these tables:

- ALLOWED: reading, writing and seeking what is open already, memory, the alarm, the end of the process.
- FATAL: what no decoder does and an exploit would. The kernel ends the process with SIGSYS, which isolation.py tells
  apart from a crash.
- Memory that holds code may not be made, so an exploit cannot bring code of its own; that is fatal too.
- Every other call fails with EPERM, as if a right were missing. Opening files, opening sockets and forking are among
  these calls. Libraries try some of them and can do without.

The Python binding of libseccomp would need a library that the system may lack. The kernel's interface is small and does
not change: an instruction has 8 bytes (<linux/filter.h>), and calls have fixed numbers (<asm/unistd.h>).
"""

import ctypes
import os
import platform
import signal
import sys
from errno import EPERM
from struct import Struct
from typing import NamedTuple


class Call(NamedTuple):
    """The numbers of one system call; None where an architecture does not have it."""

    x86_64: int | None
    aarch64: int | None


ALLOWED = {
    "read": Call(0, 63),
    "write": Call(1, 64),
    "lseek": Call(8, 62),
    "close": Call(3, 57),
    "munmap": Call(11, 215),
    "mremap": Call(25, 216),
    "madvise": Call(28, 233),
    "brk": Call(12, 214),
    "futex": Call(202, 98),
    "sched_yield": Call(24, 124),
    "setitimer": Call(38, 103),
    "clock_gettime": Call(228, 113),
    "gettimeofday": Call(96, 169),
    "rt_sigreturn": Call(15, 139),
    "restart_syscall": Call(219, 128),
    "exit": Call(60, 93),
    "exit_group": Call(231, 94),
}

MEMORY = {"mmap": Call(9, 222), "mprotect": Call(10, 226)}
"""Allowed without PROT_EXEC in their third argument, and fatal with it."""

FATAL = {
    "kill": Call(62, 129),
    "ptrace": Call(101, 117),
    "process_vm_readv": Call(310, 270),
    "process_vm_writev": Call(311, 271),
    "execve": Call(59, 221),
    "execveat": Call(322, 281),
    "truncate": Call(76, 45),
    "ftruncate": Call(77, 46),
    "unlink": Call(87, None),
    "unlinkat": Call(263, 35),
    "rename": Call(82, None),
    "renameat": Call(264, 38),
    "renameat2": Call(316, 276),
}

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The names that the kernel gives to architectures, in AUDIT_ARCH_* of <linux/audit.h>."""

SECCOMP_CALL = Call(317, 277)

_INSTRUCTION = Struct("=HBBI")  # what to do, jumps if true and if false, a constant
_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_IF_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_IF_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K
_NUMBER, _ARCHITECTURE, _THIRD_ARGUMENT = 0, 4, 32  # places in struct seccomp_data; the low half of the argument

_KILL = 0x8000_0000  # SECCOMP_RET_KILL_PROCESS
_ALLOW = 0x7FFF_0000
_REFUSE = 0x0005_0000 | EPERM  # SECCOMP_RET_ERRNO

_PROT_EXEC = 4

_GET_ACTION_AVAIL = 2
_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 4, 22, 38
_MODE_FILTER = 2

_LIBC = ctypes.CDLL(None, use_errno=True)

STOPPED_BY_FILTER = -getattr(signal, "SIGSYS", 0)
"""The exit code of a process that made a fatal call."""


class _Program(ctypes.Structure):
    """struct sock_fprog of <linux/filter.h>."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def missing_support() -> str | None:
    """Return why this system cannot filter system calls, in words for the operator. None if it can."""
    if sys.platform != "linux":
        return f"{sys.platform} has no seccomp"
    machine = platform.machine()
    if machine not in ARCHITECTURES or sys.maxsize < 1 << 32:
        return f"the numbers of system calls on {machine} are not known here"
    action = ctypes.c_uint32(_KILL)
    if _LIBC.syscall(getattr(SECCOMP_CALL, machine), _GET_ACTION_AVAIL, 0, ctypes.byref(action)) != 0:
        return "this kernel, or the container's own filter, has no seccomp filters"
    return None


def install() -> None:
    """Filter the system calls of this process from now on, for good. Raises OSError if the kernel refuses.

    The process must have one thread, and missing_support() must have returned None.
    """
    code = program(platform.machine())
    filtered = _Program(len(code) // _INSTRUCTION.size, code)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(filtered))


def close_memory() -> None:
    """Prevent other processes of this user from reading or tracing this one, and prevent core dumps.

    Does nothing on systems other than Linux. Root may still read it.
    """
    if sys.platform == "linux":
        _prctl(_PR_SET_DUMPABLE, 0)


def program(machine: str) -> bytes:
    """Return the filter for *machine*, "x86_64" or "aarch64": each test is followed by what happens if it holds."""
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 1, 0, ARCHITECTURES[machine]),  # calls in another numbering, such as that of 32 bits
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    for calls, verdict in ((ALLOWED, _ALLOW), (FATAL, _KILL)):
        for number in _numbers(calls, machine):
            code += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, verdict)]
    for number in _numbers(MEMORY, machine):
        code += [
            (_IF_EQUAL, 0, 4, number),
            (_LOAD, 0, 0, _THIRD_ARGUMENT),
            (_IF_ANY_BIT, 0, 1, _PROT_EXEC),
            (_RETURN, 0, 0, _KILL),
            (_RETURN, 0, 0, _ALLOW),
        ]
    code.append((_RETURN, 0, 0, _REFUSE))
    return b"".join(_INSTRUCTION.pack(*instruction) for instruction in code)


def _numbers(calls: dict[str, Call], machine: str) -> list[int]:
    return [number for call in calls.values() if (number := getattr(call, machine)) is not None]


def _prctl(option: int, *arguments: object) -> None:
    padded = [*arguments, 0, 0, 0, 0][:4]
    if _LIBC.prctl(option, *padded) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")
