"""Notes what the Whisper engine gives to CTranslate2, which answers as always."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class RecordingModel:
    """Hands everything to a model, and notes the prompts of each call and with which start words are aligned."""

    model: Any  # ctranslate2.models.Whisper
    calls: list[list[list[int]]] = field(default_factory=list)
    starts: list[list[int]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def generate(self, encoded: Any, prompts: list[list[int]], **search: Any) -> Any:
        self.calls.append(prompts)
        return self.model.generate(encoded, prompts, **search)

    def align(self, encoded: Any, start: list[int], *text: Any) -> Any:
        self.starts.append(start)
        return self.model.align(encoded, start, *text)
