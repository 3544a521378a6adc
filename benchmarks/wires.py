"""The WebSocket protocol of each live server: what is sent, and how its messages become Seen."""

import json
from abc import ABC, abstractmethod
from typing import ClassVar, Self

import httpx
import numpy as np

from benchmarks.live_scores import Seen, Shown
from pipeline.audio import Samples


class Refused(Exception):
    """The server accepts no more sessions at this time."""


class Wire(ABC):
    """The protocol of one session: its address, what is sent, and what the answers mean."""

    hello: str | None = None  # the first message, if there is one
    goodbye: ClassVar[str | bytes]  # what says that no more audio comes
    patience_s: ClassVar[float] = 0.0  # after the last audio, before the goodbye

    def __init__(self, url: str) -> None:
        self.url = url
        self.ready = False  # audio may be sent
        self.over = False  # nothing more will be said
        self.retractions = 0  # words that changed after they were called final

    @abstractmethod
    def frame(self, samples: Samples) -> bytes:
        """Return audio in the form that the server takes."""

    @abstractmethod
    def read(self, message: str, at: float) -> Seen | None:
        """Return what is new in *message*, which came at the time *at*. Raises Refused."""


class Scribewire(Wire):
    """A text frame per event: a `word` is final, `partial` is what follows the final words."""

    goodbye = '{"type":"close"}'

    @classmethod
    def open_session(cls, base: str, key: str, language: str | None, **options: bool) -> Self:
        """Open a new session with these options. Raises Refused."""
        order = {"encoding": "pcm_s16le", "sample_rate": 16_000, "language": language, **options}
        answer = httpx.post(f"{base}/v1/live", json=order, headers={"Authorization": f"Bearer {key}"}, timeout=60)
        if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            raise Refused(answer.text)
        return cls(answer.raise_for_status().json()["live"]["ingest_ws"])

    def frame(self, samples: Samples) -> bytes:
        return pcm_s16le(samples)

    def read(self, message: str, at: float) -> Seen | None:
        event = json.loads(message)
        match event["type"]:
            case "session.started":
                self.ready = True
            case "word":
                return Seen(at, final=(Shown(event["word"], event["start"], event["end"]),))
            case "partial":
                return Seen(at, partial=tuple(event["text"].split()))
            case "segment":
                return Seen(at, partial=(), closed=True)
            case "job.completed":
                self.over = True
            case "error" if event["error"]["code"] == "queue_full":
                raise Refused(message)
            case "error" | "job.failed" | "job.canceled":
                raise RuntimeError(message)
        return None


class LocalAgreement(Wire):
    """The protocol of benchmarks/local_agreement.py."""

    goodbye = ""

    def __init__(self, url: str, language: str) -> None:
        super().__init__(url)
        self.hello = json.dumps({"language": language})

    def frame(self, samples: Samples) -> bytes:
        return pcm_f32le(samples)

    def read(self, message: str, at: float) -> Seen | None:
        said = json.loads(message)
        self.ready, self.over = True, said["over"]
        return Seen(at, final=tuple(Shown(*word) for word in said["final"]), partial=tuple(said["partial"]))


class WhisperLive(Wire):
    """Each message has the last segments; those marked as completed are final.

    The end of the audio completes no segment, so its own client waits for the last words before it closes.
    """

    goodbye = b"END_OF_AUDIO"
    patience_s = 15.0

    def __init__(self, url: str, language: str, model: str, uid: str) -> None:
        super().__init__(url)
        order = {"uid": uid, "language": language, "task": "transcribe", "model": model, "use_vad": True}
        self.hello = json.dumps(order)
        self._final: dict[str, str] = {}  # start of a segment -> its text

    def frame(self, samples: Samples) -> bytes:
        return pcm_f32le(samples)

    def read(self, message: str, at: float) -> Seen | None:
        said = json.loads(message)
        self.ready = self.ready or said.get("message") == "SERVER_READY"
        if said.get("status") == "WAIT":
            raise Refused(message)
        new: list[Shown] = []
        partial: tuple[str, ...] = ()
        for segment in said.get("segments", ()):
            start, text = segment["start"], segment["text"]
            if not segment["completed"]:
                partial = tuple(text.split())
            elif start not in self._final:
                new += map(Shown, text.split())
                self._final[start] = text
            elif self._final[start] != text:
                self.retractions += len(text.split())
                self._final[start] = text
        return Seen(at, final=tuple(new), partial=partial) if "segments" in said else None


class WhisperLiveKit(Wire):
    """Each message has all words: the lines are final, the buffer is not."""

    goodbye = b""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._final: list[str] = []

    def frame(self, samples: Samples) -> bytes:
        return pcm_s16le(samples)

    def read(self, message: str, at: float) -> Seen | None:
        said = json.loads(message)
        self.ready = self.ready or said.get("type") == "config"
        self.over = said.get("type") == "ready_to_stop"
        if "lines" not in said:
            return None
        words = [word for line in said["lines"] for word in (line["text"] or "").split()]
        changed = (i for i, word in enumerate(self._final) if words[i : i + 1] != [word])
        self.retractions += len(self._final) - next(changed, len(self._final))
        new, self._final = words[len(self._final) :], words
        return Seen(at, final=tuple(map(Shown, new)), partial=tuple(said["buffer_transcription"].split()))


def pcm_s16le(samples: Samples) -> bytes:
    return np.clip(samples * 32768, -32768, 32767).astype("<i2").tobytes()


def pcm_f32le(samples: Samples) -> bytes:
    return samples.astype("<f4").tobytes()
