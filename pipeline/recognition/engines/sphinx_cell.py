"""The inner side of the embedded recogniser: a process that loads pocketsphinx once and forks a hearer per utterance.

It is started by sphinx.py as `python -m pipeline.recognition.engines.sphinx_cell` with a socket as its standard input.
Each byte on it comes with a socket for a new hearer, which answers windows there: a line of JSON (`final`, `bytes`)
and int16 samples in, a line of JSON with all segments so far out. A window holds what the utterance has grown by; a
final one is the last. A fork shares the model's 90 MB, is ready in milliseconds and knows nothing of utterances before
it, so that an answer depends on its own audio alone. pocketsphinx holds the interpreter's lock while it decodes: here
nobody waits for it. When the server goes, its socket closes, and this process ends and its hearers with it.
"""

import os
import signal
import socket
import traceback
from typing import NoReturn

import orjson
from pocketsphinx import Decoder

from pipeline.cells import die_with, ignore_signals

NICE = 10
"""Priority of this process and its hearers: the server's event loop goes first."""

PIECE = 1024
"""Bytes given to the decoder at a time, 32 ms. Always the same, so that what it hears does not depend on how windows
grew; and short, because of pieces longer than a second it loses the end."""

FIRST = 25 * PIECE
"""Bytes whose spectral mean an utterance begins with, 0.8 s: what a live session asks about first."""

REFRESH = 16
"""Pieces after which the mean is taken anew, over all audio so far."""

MOST_STATES = 3000
"""Hidden Markov models that stay in the race per frame. In noise none stands out, and all 30,000 would run."""


class Hearer:
    """One utterance. What it says of its audio does not depend on the windows in which that came."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._waiting = b""  # for a whole piece, or for enough to begin with
        self._first = FIRST
        self._pieces = 0

    def hear(self, pcm: bytes, *, final: bool) -> list[tuple[str, int, int, float]]:
        """All that is heard so far: dictionary entries, their first and last frame of 10 ms, their posteriors.

        Before the final there is no word lattice, and every posterior is 1.
        """
        self._waiting += pcm
        if not self._pieces and not self._begin(final=final):
            return []
        end = len(self._waiting) if final else len(self._waiting) // PIECE * PIECE
        for at in range(0, end, PIECE):
            self._decoder.process_raw(self._waiting[at : min(at + PIECE, end)], False, False)
            self._pieces += 1
            if self._pieces % REFRESH == 0:
                self._decoder.get_cmn(True)
        self._waiting = self._waiting[end:]
        if final:
            self._decoder.end_utt()
        return [(each.word, each.start_frame, each.end_frame, each.prob) for each in self._decoder.seg() or ()]

    def _begin(self, *, final: bool) -> bool:
        """Start to decode with the mean of the first audio: the model's own fits one microphone at one volume.

        False while there is too little audio or it has no mean, as digital silence has none: begun with that, the
        decoder would be deaf to all that follows.
        """
        while len(self._waiting) >= self._first or final:
            self._decoder.start_utt()
            self._decoder.process_raw(self._waiting[: self._first], True, True)  # features only
            known = "nan" not in self._decoder.get_cmn(False)
            self._decoder.end_utt()
            if known:
                self._decoder.start_utt()
                return True
            if len(self._waiting) <= self._first:
                return False
            self._first += FIRST
        return False


def serve(control: socket.socket, decoder: Decoder) -> None:
    """Fork hearers until the other side is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries them
    parent = os.getpid()
    while True:
        asked, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not asked:
            return
        if os.fork() == 0:
            _live_and_die(decoder, descriptors[0], control, parent)
        os.close(descriptors[0])


def _live_and_die(decoder: Decoder, descriptor: int, control: socket.socket, parent: int) -> NoReturn:
    """All of a hearer's life."""
    code = 1
    try:
        control.close()
        die_with(parent)
        with socket.socket(fileno=descriptor) as connection:
            _answer(connection, Hearer(decoder))
        code = 0
    except (BrokenPipeError, ConnectionResetError):
        code = 0  # nobody listens any more
    except BaseException:  # noqa: BLE001 - nothing may climb back into the loop of the process that was forked
        traceback.print_exc()
    finally:
        os._exit(code)


def _answer(connection: socket.socket, hearer: Hearer) -> None:
    """Hear windows until the final one, or until nobody listens any more."""
    final = False
    with connection.makefile("rb") as orders:
        while not final and (line := orders.readline()):
            order = orjson.loads(line)
            final = order["final"]
            segments = hearer.hear(orders.read(order["bytes"]), final=final)
            connection.sendall(orjson.dumps(segments) + b"\n")


def main() -> None:
    ignore_signals()
    os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    with socket.socket(fileno=0) as control:
        serve(control, Decoder(loglevel="ERROR", maxhmmpf=MOST_STATES))


if __name__ == "__main__":
    main()
