"""The embedded English recogniser: pocketsphinx with the model that its wheel carries. The outer side.

Small, quick and of its time: it hears clear speech, and needs nothing but its installation. A cell (sphinx_cell.py)
forks a process for each utterance, which hears only what a window adds to the one before; the windows of one call are
heard side by side. Whatever crashes or hangs over there is an error of that call, and the next one starts afresh.
"""

import os
import socket
import sys
import time
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from contextlib import ExitStack, closing

import numpy as np
import orjson

from pipeline import cells
from pipeline.audio import RATE, Samples, position
from pipeline.errors import EngineFailed, EngineTimeout, ModelUnavailable
from pipeline.recognition.engine import DecodeRequest, Heard
from pipeline.recognition.engines.sphinx_words import Segment, heard

LOAD_S = 60.0
"""Within which the model must be loaded. It takes a second, on a slow disk ten."""

PATIENCE_S = 30.0
SLOWEST = 10.0
"""A call that takes PATIENCE_S and SLOWEST times its audio hangs: it should take a sixth of its audio."""


class SphinxEngine:
    """The Engine of this model. Its memory is 0.1 GB and 35 MB for each utterance that it has in mind."""

    name = "sphinx"
    model = "en-us"
    languages = frozenset({"en"})
    incremental = True
    job = position(8)  # longer ones are heard no better, and live windows wait for them

    def __init__(self, *, processes: int | None = None) -> None:
        """Ready to hear *processes* windows at a time; as many as there are processors where it is None.

        Raises ModelUnavailable where pocketsphinx does not run.
        """
        self.most = processes or _processors()
        self._patience_s = PATIENCE_S
        self._cell: _Cell | None = None
        self._utterances: OrderedDict[str, _Hearer] = OrderedDict()  # the one that was heard longest ago comes first
        self._room = max(8, 4 * self.most)  # utterances in mind: more than the processors can keep up with
        try:
            self._answers([DecodeRequest(samples=np.zeros(RATE // 10, np.float32), start=0)], LOAD_S)
        except (EngineFailed, EngineTimeout) as error:
            self._end()
            raise ModelUnavailable("pocketsphinx does not run: install the service again") from error

    def bucket(self, request: DecodeRequest) -> Hashable:
        """A live window takes a fraction of a second, a file's takes seconds: they do not wait for each other."""
        return request.utterance is None

    def hear(self, requests: Sequence[DecodeRequest]) -> list[Heard]:
        """What the windows say. An utterance that was forgotten is heard again from the window's start."""
        audio_s = sum(len(request.samples) for request in requests) / RATE
        answers = self._answers(requests, self._patience_s + SLOWEST * audio_s)
        return [heard(request, segments) for request, segments in zip(requests, answers, strict=True)]

    def detect_language(self, windows: Sequence[Samples]) -> tuple[str, float]:  # noqa: ARG002 (the role's)
        """English, the one language that it knows."""
        return "en", 1.0

    def close(self) -> None:
        """End every process."""
        self._end()

    def _answers(self, requests: Sequence[DecodeRequest], wait_s: float) -> list[list[Segment]]:
        """What hearers say of the windows. Where one fails, all that take part are ended."""
        deadline = time.monotonic() + wait_s
        with ExitStack() as failing:
            try:
                hearers: list[_Hearer] = []
                for request in requests:
                    hearers.append(failing.enter_context(closing(self._hearer(request))))
                    hearers[-1].tell(request, deadline)
                answers = [hearer.answer(deadline) for hearer in hearers]
            except TimeoutError:
                self._end()
                raise EngineTimeout(f"the recogniser gave no answer within {wait_s:.0f} s") from None
            except (OSError, EOFError) as error:
                raise EngineFailed("a process of the recogniser ended in the middle of a call") from error
            failing.pop_all()
        for request, hearer in zip(requests, hearers, strict=True):
            if request.final or request.utterance is None:
                hearer.close()
            else:
                self._utterances[request.utterance] = hearer
        return answers

    def _hearer(self, request: DecodeRequest) -> "_Hearer":
        """The one that knows the beginning of the window, or else a new one."""
        known = None if request.utterance is None else self._utterances.pop(request.utterance, None)
        if known is not None:
            if known.begins(request):
                return known
            known.close()
        while len(self._utterances) >= self._room:
            self._utterances.popitem(last=False)[1].close()
        if self._cell is not None:
            try:
                return self._cell.fork(request.start)
            except OSError:
                self._end()  # it died since the last call
        self._cell = _Cell()
        return self._cell.fork(request.start)

    def _end(self) -> None:
        """End every process, whatever it is doing."""
        while self._utterances:
            self._utterances.popitem()[1].close()
        if self._cell is not None:
            self._cell.kill()
            self._cell = None


class _Hearer:
    """The process of one utterance. It ends when it is closed, once it is done with what it was told."""

    def __init__(self, connection: socket.socket, start: int) -> None:
        self._connection = connection
        self._answers = connection.makefile("rb")
        self._start = start
        self._heard = 0  # samples

    def begins(self, request: DecodeRequest) -> bool:
        """Whether the window of *request* begins with what was heard."""
        return request.start == self._start and len(request.samples) >= self._heard

    def tell(self, request: DecodeRequest, deadline: float) -> None:
        """Send what the window adds. Raises OSError, and TimeoutError after *deadline*."""
        news = request.samples[self._heard :]
        pcm = np.rint(np.clip(news, -1.0, 1.0) * 32767.0).astype("<i2").tobytes()
        order = orjson.dumps({"final": request.final, "bytes": len(pcm)}) + b"\n"
        self._connection.settimeout(_left(deadline))
        self._connection.sendall(order + pcm)
        self._heard += len(news)

    def answer(self, deadline: float) -> list[Segment]:
        """All that it heard so far. Raises OSError, EOFError, and TimeoutError after *deadline*."""
        self._connection.settimeout(_left(deadline))
        line = self._answers.readline()
        if not line:
            raise EOFError
        segments: list[Segment] = orjson.loads(line)
        return segments

    def close(self) -> None:
        self._answers.close()
        self._connection.close()


class _Cell:
    """The process that forks hearers. They end with it, and it ends when its socket closes, as when this one dies."""

    def __init__(self) -> None:
        self._socket, self._process = cells.started("pipeline.recognition.engines.sphinx_cell")
        self._socket.settimeout(LOAD_S)

    def fork(self, start: int) -> _Hearer:
        """A new hearer of an utterance that begins at *start*. Raises OSError where the process is gone."""
        connection, inner = socket.socketpair()
        with ExitStack() as failing, inner:
            failing.enter_context(connection)
            socket.send_fds(self._socket, [b"+"], [inner.fileno()])
            failing.pop_all()
        return _Hearer(connection, start)

    def kill(self) -> None:
        """End it and its hearers. Calling it again does nothing."""
        self._socket.close()
        self._process.kill()
        self._process.wait()


def _processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _left(deadline: float) -> float:
    """Seconds until *deadline*, at least a moment: a socket without any would not wait for what is there."""
    return max(deadline - time.monotonic(), 0.001)
