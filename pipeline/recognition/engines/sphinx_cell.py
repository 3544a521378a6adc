"""The inner side of the embedded recogniser: a process that loads pocketsphinx once and forks a hearer per utterance.

It is started by sphinx.py as `python -m pipeline.recognition.engines.sphinx_cell` with a socket as its standard input.
Each byte on it comes with a socket for a new hearer, which answers windows there: a line of JSON (`final`, `bytes`)
and int16 samples in, a line of JSON with all segments so far out. A window holds what the utterance has grown by; a
final one is the last. A fork shares the model's 90 MB, is ready in milliseconds and knows nothing of utterances before
it, so that an answer depends on its own audio alone. pocketsphinx holds the interpreter's lock while it decodes: here
nobody waits for it. When the server goes, its socket closes, and this process ends and its hearers with it.
"""

import ctypes
import os
import signal
import socket
import sys
import traceback
from typing import NoReturn

import orjson
from pocketsphinx import Decoder

NICE = 10
"""Priority of this process and its hearers: the server's event loop goes first."""

PIECE = 1024
"""Bytes given to the decoder at a time: a voice activity window, of which live windows are made, so that an utterance
is heard in the same pieces however it grew. Of pieces longer than a second it would lose the end."""

PR_SET_PDEATHSIG = 1  # <sys/prctl.h>


class Hearer:
    """One utterance, heard as it grows."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._started = False
        self._waiting = b""  # audio that holds nothing yet

    def hear(self, pcm: bytes, *, final: bool) -> list[tuple[str, int, int, float]]:
        """Everything heard so far: dictionary entries, their first and last frame of 10 ms, their posteriors.

        Before the final there is no word lattice, and every posterior is 1.
        """
        pcm, self._waiting = self._waiting + pcm, b""
        self._started = self._started or self._start(pcm)
        if not self._started:
            self._waiting = pcm
            return []
        for at in range(0, len(pcm), PIECE):
            self._decoder.process_raw(pcm[at : at + PIECE], False, False)
        if final:
            self._decoder.end_utt()
        return [(each.word, each.start_frame, each.end_frame, each.prob) for each in self._decoder.seg() or ()]

    def _start(self, pcm: bytes) -> bool:
        """Begin with the spectral mean of the first audio: the model's own fits one microphone at one volume.

        False where that has no mean, as digital silence: begun with it, the decoder would be deaf to what follows.
        """
        self._decoder.start_utt()
        self._decoder.process_raw(pcm, True, True)  # features only
        mean = self._decoder.get_cmn(True)
        self._decoder.end_utt()
        if "nan" in mean:
            return False
        self._decoder.set_cmn(mean)
        self._decoder.start_utt()
        return True


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
        if sys.platform == "linux":  # elsewhere it ends when it next reads
            _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            assert os.getppid() == parent, "the parent died before it could take this child along"
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
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # the server ends this process, also when all of its group are told to stop
    os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    with socket.socket(fileno=0) as control:
        serve(control, Decoder(loglevel="ERROR"))


_LIBC = ctypes.CDLL(None)

if __name__ == "__main__":
    main()
