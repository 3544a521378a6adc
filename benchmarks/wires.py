"""The WebSocket protocol of each live server: what is sent, and how its messages become Seen."""

import json
from abc import ABC, abstractmethod
from typing import ClassVar, Self

import httpx
import numpy as np

from benchmarks.live_scores import Seen, Shown
from pipeline.audio import Samples


class Wire(ABC):
    """The protocol of one session: its address, what is sent, and what the answers mean."""

    hello: str | None = None  # the first message, if there is one
    goodbye: ClassVar[str]  # what says that no more audio comes

    def __init__(self, url: str) -> None:
        self.url = url
        self.ready = False  # audio may be sent
        self.over = False  # nothing more will be said

    @abstractmethod
    def frame(self, samples: Samples) -> bytes:
        """Return audio in the form that the server takes."""

    @abstractmethod
    def read(self, message: str, at: float) -> Seen | None:
        """Return what is new in *message*, which came at the time *at*. Raises RuntimeError for a failed session."""


class Scribewire(Wire):
    """A text frame per event: a `word` is final, `partial` is what follows the final words."""

    goodbye = '{"type":"close"}'

    @classmethod
    def open_session(cls, base: str, key: str, language: str | None, **options: bool) -> Self:
        """Open a new session with these options. Raises httpx.HTTPStatusError if the server takes no more."""
        order = {"encoding": "pcm_s16le", "sample_rate": 16_000, "language": language, **options}
        answer = httpx.post(f"{base}/v1/live", json=order, headers={"Authorization": f"Bearer {key}"}, timeout=60)
        return cls(answer.raise_for_status().json()["live"]["ingest_ws"])

    def frame(self, samples: Samples) -> bytes:
        return np.clip(samples * 32768, -32768, 32767).astype("<i2").tobytes()

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
                return Seen(at, partial=())
            case "job.completed":
                self.over = True
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
        return samples.astype("<f4").tobytes()

    def read(self, message: str, at: float) -> Seen | None:
        said = json.loads(message)
        self.ready, self.over = True, said["over"]
        return Seen(at, final=tuple(Shown(*word) for word in said["final"]), partial=tuple(said["partial"]))
