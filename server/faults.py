"""Keeps faults from spreading: each is logged with its trace, counted, and ends only the work in which it occurred.

    with contain("webhook", metrics, delivery=delivery.id):
        ...                                               # an error raised here ends here

Cancellation, SystemExit and KeyboardInterrupt are not contained.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from server.logs import log
from server.metrics import Metrics
from server.waiting import set_within

AGAIN_S = 2.0  # before keep_running() restarts work that a fault has ended


@contextmanager
def contain(what: str, metrics: Metrics, **about: object) -> Iterator[None]:
    """Run the block. A fault in it is logged and counted, and the caller continues after the block.

    *what* names the work in the log and labels the metric, so there should be few names. *about* are further fields of
    the log line.
    """
    try:
        yield
    except Exception:  # noqa: BLE001  no error may reach the work of others
        metrics.faults.labels(what).inc()
        log.exception("%s failed", what, extra=about)


async def keep_running(
    what: str, work: Callable[[], Awaitable[None]], *, metrics: Metrics, stopping: asyncio.Event
) -> None:
    """Run *work*. If a fault ends it, restart it after AGAIN_S, until it returns or *stopping* is set.

    A cancellation that is not meant for this task is a fault too: a task group would take it for the end of *work*.
    """
    task = asyncio.current_task()
    assert task is not None
    while True:
        with contain(what, metrics):
            try:
                await work()
            except asyncio.CancelledError as stray:
                if task.cancelling():
                    raise
                raise RuntimeError("what this waited for was cancelled") from stray
            return
        if await set_within(stopping, AGAIN_S):
            return
