"""Detects speech in all live streams of a process together: their windows go to the model in one call, on a thread.

    voices = LiveVoices(VoiceDetector())
    voice = voices.stream()
    probabilities = await voice(windows)

The event loop only hands windows over. A call begins at once if none did within the last BEAT_S. So one stream does not
wait, and with many streams each call has windows of many of them.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from pipeline.ingest.framer import Windows
from pipeline.ingest.vad import VoiceDetector, VoiceStream

BEAT_S = 0.03
"""The shortest time between the beginnings of two calls, and so the longest wait for one."""


@dataclass(slots=True)
class _Waiting:
    stream: VoiceStream
    windows: Windows
    found: "asyncio.Future[list[float]]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class LiveVoices:
    """The voice detector of live streams. It belongs to one event loop."""

    def __init__(self, detector: VoiceDetector) -> None:
        self.detector = detector
        self._thread = ThreadPoolExecutor(1, "live voices")
        self._waiting: list[_Waiting] = []
        self._calling = False
        self._began = 0.0  # the last call

    def stream(self) -> "LiveVoice":
        """Return a detector for one stream, with its own state."""
        return LiveVoice(self, self.detector.stream())

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


class LiveVoice:
    """Detects speech in one live stream, in order."""

    def __init__(self, voices: LiveVoices, stream: VoiceStream) -> None:
        self._voices = voices
        self._stream = stream

    def __call__(self, windows: Windows) -> "asyncio.Future[list[float]]":
        """Return a future with the speech probability of each of the next windows. Await it before the next call."""
        return self._voices.detect(self._stream, windows)
