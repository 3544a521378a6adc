"""The interface of translators, Whisper as one of them, and the audio that it is given once more.

Texts with context go in, and texts come out. Units and times are none of a translator's business. Whisper decodes the
audio of a unit again and writes English.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import FULL_SCALE, RATE, WINDOW, Pcm, Samples, floats_of
from pipeline.errors import EngineFailed, EngineTimeout, PipelineError
from pipeline.languages import ENGLISH, columns
from pipeline.recognition.engine import NO_HINTS, TRANSLATE, DecodeRequest, Hints
from pipeline.recognition.model_set import ModelSet
from pipeline.recognition.scheduler import Urgency
from pipeline.text.options import NO_CHANGES, USUAL_SETTINGS, TextOptions, TextSettings
from pipeline.text.rewriting import SegmentRewriter
from pipeline.text.stage import TextStage
from pipeline.translation.units import Unit
from pipeline.words import Segment, join_words

LONGEST_FACTOR, LONGEST_MORE = 3, 30
"""A translation has at most this many times the columns of its text, and this many more."""

AROUND = 1600
"""Audio before and after a unit that is transcribed with it, 0.1 s."""

LONGEST = 120 * RATE
"""The most audio that is kept, however long its words wait for their translations: 4 MB of each channel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationRequest:
    """One text to translate."""

    text: str
    target: str  # a code of languages.py
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


class ListeningTranslator:
    """The translator of one job. Its text goes through the text stage, as it is made of audio."""

    listens = True

    def __init__(
        self,
        models: ModelSet,
        *,
        urgency: Urgency,
        hints: Hints = NO_HINTS,
        text: TextOptions = NO_CHANGES,
        settings: TextSettings = USUAL_SETTINGS,
    ) -> None:
        self._models = models
        self._urgency = urgency
        self._hints = Hints(hints.keywords)
        self._text = text
        self._settings = settings

    async def translate(self, request: TranslationRequest) -> str:
        """See Translator. An English text of the audio, whatever the target."""
        samples = request.samples
        if samples is None or not len(samples):
            raise UnusableAnswer("the audio is gone")
        name = self._models.translating(request.source)
        if name is None:
            raise UnusableAnswer(f"no model here translates {request.source}")
        window = DecodeRequest(
            samples=samples,
            start=0,
            language=request.source,
            task=TRANSLATE,
            voiced=((0, len(samples)),),
            hints=self._hints,
        )
        try:
            model = await self._models.load(name)
            result = await model.recognise(window, tenant=request.tenant, urgency=self._urgency)
        except (EngineFailed, EngineTimeout) as error:
            raise TranslatorUnavailable(str(error)) from error
        if not result.words or not self._text.changes_words:
            return join_words(result.words)
        stage = TextStage(self._text, language=ENGLISH, patient=True, settings=self._settings)
        rewriter = SegmentRewriter(stage, one_language=True)
        segment = Segment(result.words, result.avg_logprob, result.no_speech_prob)
        segments = rewriter.rewrite([segment], language=None, reached=0)
        return join_words(word for one in [*segments, *rewriter.flush()] for word in one.words)


def needed_from(settled: int, begins: int | None) -> int:
    """The position from which a restart needs the audio again.

    *settled*: that of the recognition. *begins*: where the first word begins that is still to be translated.
    """
    first = settled if begins is None else min(settled, begins - AROUND)
    return max(0, first, settled - LONGEST) // WINDOW * WINDOW


class KeptAudio:
    """Keeps what has come since the first word that has no translation, in 16 bits."""

    def __init__(self, start: int, redacted: Callable[[], Sequence[tuple[int, int]]]) -> None:
        """*start*: the position of the first sample. *redacted*: where something was said that nobody may hear."""
        self._start = self.end = start
        self._redacted = redacted
        self._pieces: deque[NDArray[np.int16]] = deque()

    def add(self, samples: Samples, *, needed_from: int) -> None:
        """Add the next samples, of all channels, and forget what is before *needed_from*."""
        self._pieces.append((samples * (FULL_SCALE - 1)).astype(np.int16))
        self.end += len(samples)
        least = max(needed_from - AROUND, self.end - LONGEST)
        while self._pieces and self._start + len(self._pieces[0]) <= least:
            self._start += len(self._pieces.popleft())

    async def of(self, unit: Unit) -> Samples | None:
        """Return the audio of *unit*, and a little around it, without what is redacted; None if it is gone."""
        if unit.start < self._start or not self._pieces:
            return None
        first, last = max(self._start, unit.start - AROUND), min(self.end, unit.end + AROUND)
        whole: Pcm = np.concatenate(self._pieces)[first - self._start : last - self._start]
        heard = floats_of(whole if unit.channel is None else np.ascontiguousarray(whole[:, unit.channel]))
        for start, end in self._redacted():
            heard[max(0, start - first) : max(0, end - first)] = 0
        return heard


class FileAudio:
    """Decodes a file once more, as far as its units need it."""

    def __init__(self, audio: AsyncIterator[Samples], redacted: Sequence[tuple[int, int]]) -> None:
        """*audio*: that of the file, from its beginning."""
        self._audio = audio
        self._kept = KeptAudio(0, lambda: redacted)

    async def of(self, unit: Unit) -> Samples | None:
        """See KeptAudio.of(). Units are asked for in about the order in which they were said."""
        while self._kept.end < unit.end + AROUND and (samples := await anext(self._audio, None)) is not None:
            self._kept.add(samples, needed_from=max(0, self._kept.end - LONGEST))
        return await self._kept.of(unit)
