"""A server whose file operations fail when a test wants it, at the border to the operating system (Linux).

The commands come as lines on the socket that FAULTS_AT names: `arm COUNT ERRNO` lets the operation number COUNT on a
file below the data folder fail, from then on counted from 1; with a KIND behind it, such as os.link, only operations of
that kind count. `count` answers how many there were, and the one that failed. Further arguments: as ever.
"""

import errno
import os
import socket
import sys
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from server.__main__ import main

AUDITED = frozenset({"open", "os.listdir", "os.scandir", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link"})
"""Operations that Python reports before they happen. What a hook raises takes their place."""

UNAUDITED = ("fsync", "writev", "write", "pread", "stat", "fstat", "fstatvfs", "ftruncate")
"""Further functions of os that work on files."""


class Faults:
    """Counts file operations and lets one of them fail. The database's own are SQLite's and not counted."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._count = 0
        self._failing = 0  # the number of the one that fails; 0: none is counted
        self._errno = 0
        self._kind = ""
        self._failed = ""

    def obey(self, command: str) -> str:
        """Do what the command says and return the answer."""
        with self._lock:
            match command.split():
                case ["arm", count, number, *kind]:
                    self._count, self._failing, self._errno, self._failed = 0, int(count), int(number), ""
                    self._kind = "".join(kind)
                case ["count"]:
                    self._failing = 0
        return f"{self._count} {self._failed}"

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in AUDITED and self._failing:
            self.check(event, arguments[0])

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def work(place: Any, *arguments: Any, **options: Any) -> Any:
            if self._failing:
                self.check(f"os.{function.__name__}", place)
            return function(place, *arguments, **options)

        return work

    def check(self, what: str, place: Any) -> None:
        """Raise OSError if this is the operation that fails."""
        path = str(Path(f"/proc/self/fd/{place}").readlink()) if isinstance(place, int) else os.fspath(place)
        if not isinstance(path, str) or not path.startswith(self._folder) or "scribewire.db" in path:
            return
        with self._lock:
            if not self._failing or self._kind not in ("", what):
                return
            self._count += 1
            if self._count == self._failing:
                self._failed = f"{what} {path} {errno.errorcode[self._errno]}"
                raise OSError(self._errno, os.strerror(self._errno), path)


def serve(control: socket.socket, faults: Faults) -> None:
    """Obey the commands of the test, one line each."""
    with control, control.makefile("rw") as lines:
        for line in lines:
            print(faults.obey(line), file=lines, flush=True)


if __name__ == "__main__":
    faults = Faults(str(Path(os.environ["SCRIBEWIRE_DATA_DIR"]).resolve()))
    control = socket.create_connection(("127.0.0.1", int(os.environ["FAULTS_AT"])))
    threading.Thread(target=serve, args=(control, faults), daemon=True).start()
    for name in UNAUDITED:
        setattr(os, name, faults.wrap(getattr(os, name)))
    sys.addaudithook(faults.hook)
    sys.exit(main())
