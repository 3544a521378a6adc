"""Detects speech in all live streams of a process together: their windows go to the model in one call, on a thread.

    vad = LiveVad(VoiceDetector())
    detect = vad.stream()
    probabilities = await detect(windows)

The event loop only hands windows over. A call begins at once if none did within the last BEAT_S. So one stream does not
wait, and with many streams each call has windows of many of them.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from pipeline.ingest.framer import Windows
from pipeline.ingest.speech import LiveSpeechProbability
from pipeline.ingest.vad import VoiceDetector, VoiceStream

BEAT_S = 0.03
"""The shortest time between the beginnings of two calls, and so the longest wait for one."""


@dataclass(slots=True)
class _Waiting:
    stream: VoiceStream
    windows: Windows
    found: "asyncio.Future[list[float]]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class LiveVad:
    """The voice detector of live streams. It belongs to one event loop."""

    def __init__(self, detector: VoiceDetector) -> None:
        self.detector = detector
        self._thread = ThreadPoolExecutor(1, "live vad")
        self._waiting: list[_Waiting] = []
        self._calling = False
        self._began = 0.0  # the last call

    def stream(self) -> LiveSpeechProbability:
        """Return what detects speech in one stream, window by window: detect() with a state of its own.

        Await its answer before the next call.
        """
        return partial(self.detect, self.detector.stream())

    def close(self) -> None:
        """End the thread, after its last call."""
        self._thread.shutdown()

    def detect(self, stream: VoiceStream, windows: Windows) -> "asyncio.Future[list[float]]":
        """Return a future with the probabilities of the next windows of *stream*, or with the error of the model."""
        waiting = _Waiting(stream, windows)
        self._waiting.append(waiting)
        if not self._calling:
            self._calling = True
            loop = asyncio.get_running_loop()
            loop.call_at(max(loop.time(), self._began + BEAT_S), self._call)
        return waiting.found

    def _call(self) -> None:
        """Give the thread all that waits."""
        loop, waiting = asyncio.get_running_loop(), self._waiting
        self._waiting, self._began = [], loop.time()
        streams, pieces = [one.stream for one in waiting], [one.windows for one in waiting]
        calling = loop.run_in_executor(self._thread, self.detector.detect, streams, pieces)
        calling.add_done_callback(lambda done: self._settle(waiting, done))

    def _settle(self, waiting: Sequence[_Waiting], done: "asyncio.Future[list[list[float]]]") -> None:
        """Pass on the results of a call, or its error, and plan the next one."""
        error = done.exception()
        for number, one in enumerate(waiting):
            if one.found.done():
                continue  # its session has ended
            if error is None:
                one.found.set_result(done.result()[number])
            else:
                one.found.set_exception(error)
        self._calling = bool(self._waiting)
        if self._calling:
            loop = asyncio.get_running_loop()
            loop.call_at(max(loop.time(), self._began + BEAT_S), self._call)
