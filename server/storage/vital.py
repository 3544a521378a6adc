"""Threads whose failure ends the process."""

import os
import threading
from collections.abc import Callable

from server.logs import log

SOFTWARE = 70  # exit status for an error of the program, from sysexits.h


def start_vital(work: Callable[[], None], *, name: str) -> threading.Thread:
    """Start a thread that does *work*, and end the process if *work* raises.

    Otherwise callers would wait for ever for a thread that is gone. Uncommitted work is undone, as when the process is
    killed. The thread is a daemon, so a program can end without closing the storage.
    """

    def run() -> None:
        try:
            work()
        except BaseException:  # noqa: BLE001  whatever it is, nobody else sees it
            log.critical("a thread that nothing works without has failed; this process ends", exc_info=True)
            os._exit(SOFTWARE)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
