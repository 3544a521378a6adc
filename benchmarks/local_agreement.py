"""A live server the usual way: LocalAgreement over WhisperModel.transcribe: python -m benchmarks.local_agreement MODEL

Written after Macháček, Dabre, Bojar, "Turning Whisper into Real-Time Transcription System" (2023): every second all
audio since the last cut is transcribed again, and the words that two successive answers agree on become final. Beyond
15 s the audio is cut at the end of the last segment that is final. The text before the cut is not passed as a prompt,
because the test model makes six times as many errors with it. There is one model with one lock. This server exists
only for comparison.

A text frame {"language"} comes first, then float32 PCM at 16 kHz in binary frames, then an empty text frame; each
answer is {"final": [[word, start, end]], "partial": [word], "over": bool}.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from faster_whisper import WhisperModel
from websockets.asyncio.server import ServerConnection, serve

RATE = 16_000
STEP_S = 1.0
LONGEST_S = 15.0
BEAM = 5


@dataclass(frozen=True)
class Word:
    text: str
    start: float
    end: float


class Session:
    """The audio since the last cut, and the words of it."""

    def __init__(self, model: WhisperModel, language: str) -> None:
        self._model = model
        self._language = language
        self._audio = np.zeros(0, np.float32)
        self._cut_s = 0.0
        self._final: list[Word] = []
        self._previous: list[Word] = []

    def answer(self, audio: np.ndarray, *, last: bool) -> tuple[list[Word], list[Word]]:
        """Return the words that became final with *audio*, and those that are not final."""
        self._audio = np.concatenate([self._audio, audio])
        words, ends = self._transcribe()
        done = self._final[-1].end if self._final else 0.0
        fresh = _without_overlap(self._final, [word for word in words if word.end > done + 0.1 or word.start >= done])
        agreed = [a for a, _ in takewhile(lambda pair: _same(*pair), zip(fresh, self._previous, strict=False))]
        new = fresh if last else agreed
        self._previous = fresh[len(new) :]
        self._final += new
        self._cut(ends)
        return new, self._previous

    def _transcribe(self) -> tuple[list[Word], list[float]]:
        segments, _ = self._model.transcribe(self._audio, language=self._language, beam_size=BEAM, word_timestamps=True)
        words, ends = [], []
        for segment in segments:
            at = self._cut_s
            words += [Word(word.word, word.start + at, word.end + at) for word in segment.words or ()]
            ends.append(segment.end + at)
        return words, ends

    def _cut(self, ends: Sequence[float]) -> None:
        """Drop final audio up to the end of a segment if there is too much audio."""
        if len(self._audio) <= LONGEST_S * RATE or not self._final:
            return
        cut_s = max((end for end in ends[:-1] if end <= self._final[-1].end), default=self._cut_s)
        self._audio = self._audio[round((cut_s - self._cut_s) * RATE) :]
        self._cut_s = cut_s


def _same(one: Word, other: Word) -> bool:
    return one.text.strip().casefold() == other.text.strip().casefold()


def _without_overlap(final: Sequence[Word], fresh: list[Word]) -> list[Word]:
    """Return the words without those at the start that repeat the last final ones, whose times may have moved."""
    for count in range(min(5, len(final), len(fresh)), 0, -1):
        near = abs(fresh[0].start - final[-count].start) < 1.0
        if near and all(map(_same, final[-count:], fresh[:count])):
            return fresh[count:]
    return fresh


class Server:
    def __init__(self, model: WhisperModel) -> None:
        self._model = model
        self._lock = asyncio.Lock()

    async def serve(self, connection: ServerConnection) -> None:
        session = Session(self._model, json.loads(await connection.recv())["language"])
        await connection.send(json.dumps({"final": [], "partial": [], "over": False}))
        waiting: list[bytes] = []
        ended = asyncio.Event()
        reading = asyncio.create_task(_read(connection, waiting, ended))
        while not ended.is_set():
            if sum(map(len, waiting)) < STEP_S * RATE * 4:
                await asyncio.sleep(0.05)
                continue
            await self._step(connection, session, waiting, last=False)
        await self._step(connection, session, waiting, last=True)
        await reading

    async def _step(self, connection: ServerConnection, session: Session, waiting: list[bytes], *, last: bool) -> None:
        async with self._lock:
            audio = np.frombuffer(b"".join(waiting), np.float32)
            waiting.clear()
            final, partial = await asyncio.to_thread(session.answer, audio, last=last)
        answer = {"final": [[w.text, w.start, w.end] for w in final], "partial": [w.text for w in partial]}
        await connection.send(json.dumps({**answer, "over": last}))


async def _read(connection: ServerConnection, waiting: list[bytes], ended: asyncio.Event) -> None:
    async for message in connection:
        if isinstance(message, bytes):
            waiting.append(message)
        else:
            break
    ended.set()


async def main(model: str, port: int) -> None:
    loaded = WhisperModel(model, device="cpu", compute_type="int8")
    async with serve(Server(loaded).serve, "127.0.0.1", port):
        print("ready", flush=True)
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
