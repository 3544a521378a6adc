"""The interface of translators: texts with context in, texts out. Units and times are none of their business."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pipeline.audio import Samples
from pipeline.errors import PipelineError
from pipeline.language_profiles import columns


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationRequest:
    """One text to translate."""

    text: str
    target: str  # a code of language_names.py
    source: str | None = None  # None: unknown
    context: Sequence[tuple[str, str]] = ()  # texts before it, in order, each with its translation
    terms: Sequence[str] = ()  # names and terms that may occur
    keep: Sequence[str] = ()  # what must be in the answer as it is: labels of redacted words
    samples: Samples | None = None  # the audio of the text, for translators that listen
    tenant: str = ""

    def without_context(self) -> "TranslationRequest":
        return replace(self, context=())


class Translator(Protocol):
    """Translates texts. Its answers are data: whoever asks checks them with answer_of()."""

    listens: bool
    """Whether it translates the audio of a request and not its text."""

    async def translate(self, request: TranslationRequest) -> str:
        """Return the translation of one text. Raises TranslatorUnavailable, UnusableAnswer."""
        ...


class TranslatorUnavailable(PipelineError):
    """The translator does not answer now. Asking again in *retry_after_s* or later may help."""

    def __init__(self, message: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UnusableAnswer(PipelineError):
    """The translator's answer to this text cannot be its translation, or it refused the text."""


LONGEST_FACTOR, LONGEST_MORE = 3, 30
"""A translation has at most this many times the columns of its text, and this many more."""


def answer_of(answer: str, request: TranslationRequest) -> str:
    """Return the translation in an *answer*, as one line of text. Raises UnusableAnswer if it cannot be one."""
    text = " ".join(answer.split())
    if not text:
        raise UnusableAnswer("an empty answer")
    if columns(text) > LONGEST_FACTOR * columns(request.text) + LONGEST_MORE:
        raise UnusableAnswer(f"an answer of {len(text)} characters to a text of {len(request.text)}")
    if missing := [label for label in request.keep if label not in text]:
        raise UnusableAnswer(f"an answer without {', '.join(missing)}")
    return text
