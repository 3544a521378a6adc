"""Remembers on disk what a Whisper model answered, so that a changed rule costs only the calls that it changes.

Every call of the model has a key: the digest of its features, prompts and options. A call whose key is known gives the
stored answer and counts the CPU seconds that it took when it was made.
"""

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np


class Memo:
    """Answers by key, in one SQLite file. *cpu_s* is the cost of those that were asked for since it was set to 0."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._rows = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=60)
        self._rows.execute("PRAGMA synchronous = OFF")
        self._rows.execute("CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, answer TEXT, cpu_s REAL)")
        self.cpu_s = 0.0
        self.calls = self.made = 0

    def ask(self, key: bytes, make: Callable[[], Any], ready: Callable[[], object] = lambda: None) -> Any:
        """Return the answer of *key*, by *make* if it is not known, as JSON. The time of *ready* is not counted."""
        self.calls += 1
        found = self._rows.execute("SELECT answer, cpu_s FROM answers WHERE key = ?", (key,)).fetchone()
        if found is None:
            self.made += 1
            ready()
            before = time.process_time()
            answer = make()
            found = json.dumps(answer), time.process_time() - before
            self._rows.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", (key, *found))
        self.cpu_s += found[1]
        return json.loads(found[0])


class _States:
    """The encoder's output for some features, made when a call needs it that is not remembered."""

    def __init__(self, features: Any) -> None:
        self.features = features
        array = np.array(features)
        self.key = hashlib.sha256(array.tobytes() + str(array.shape).encode()).digest()
        self.real: Any = None


class RememberedModel:
    """A ctranslate2 Whisper model with a memo: the methods that WhisperEngine calls."""

    def __init__(self, model: Any, name: str, memo: Memo) -> None:
        self._model, self._name, self._memo = model, name, memo
        self.is_multilingual = model.is_multilingual

    def encode(self, features: Any) -> _States:
        states = _States(features)

        def make() -> bool:
            states.real = self._model.encode(states.features)
            return True

        self._memo.ask(self._key("encode", states), make)
        return states

    def generate(self, states: _States, prompts: Sequence[Sequence[int]], **options: Any) -> list[Any]:
        def make() -> list[list[Any]]:
            results = self._model.generate(self._encoded(states), prompts, **options)
            return [[one.sequences_ids, one.scores, one.no_speech_prob] for one in results]

        key = self._key("generate", states, prompts, sorted(options.items()))
        known = self._memo.ask(key, make, partial(self._encoded, states))
        return [SimpleNamespace(sequences_ids=ids, scores=scores, no_speech_prob=prob) for ids, scores, prob in known]

    def align(self, states: _States, start: Sequence[int], tokens: Sequence[Sequence[int]], frames: Any) -> list[Any]:
        def make() -> list[list[Any]]:
            results = self._model.align(self._encoded(states), start, tokens, frames)
            return [[[list(pair) for pair in one.alignments], list(one.text_token_probs)] for one in results]

        known = self._memo.ask(self._key("align", states, start, tokens, frames), make, partial(self._encoded, states))
        return [SimpleNamespace(alignments=pairs, text_token_probs=probs) for pairs, probs in known]

    def detect_language(self, states: _States) -> list[list[tuple[str, float]]]:
        def make() -> Any:
            return self._model.detect_language(self._encoded(states))

        known = self._memo.ask(self._key("detect", states), make, partial(self._encoded, states))
        return [[(token, share) for token, share in row] for row in known]

    def unload_model(self) -> None:
        self._model.unload_model()

    def _encoded(self, states: _States) -> Any:
        if states.real is None:
            states.real = self._model.encode(states.features)
        return states.real

    def _key(self, *parts: Any) -> bytes:
        parts = [part.key.hex() if isinstance(part, _States) else part for part in (self._name, *parts)]
        return hashlib.sha256(json.dumps(parts).encode()).digest()
