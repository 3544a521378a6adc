"""Makes the translations of an order: one for each of its targets, by the operator's translator or the models here."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pipeline.audio import seconds
from pipeline.languages import ENGLISH
from pipeline.recognition.engine import TRANSLATE
from pipeline.recognition.model_set import ModelSet
from pipeline.recognition.scheduler import Urgency
from pipeline.text.options import USUAL_SETTINGS, TextSettings
from pipeline.timeline import Translation as TranslationEntry
from pipeline.transcription import Transcription
from pipeline.translation.target import CONTEXT_PAIRS, SamplesOf, Target, TargetOptions, no_samples
from pipeline.translation.translator import ListeningTranslator, Translator
from pipeline.translation.units import Backlog, NumberedWord, spans_of
from pipeline.words import join_words
from server.model.offers import ANY_TARGET
from server.model.orders import Order
from server.translation.remote import ChatTranslator, LibreTranslator

LISTENING_WAIT_S = 600.0
"""How long the end of a job waits for the models here, which answer late where many windows wait, but do answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """The translators of one environment."""

    models: ModelSet
    remote: ChatTranslator | LibreTranslator | None = None  # of the operator; it serves all targets
    text: TextSettings = USUAL_SETTINGS
    timeout_s: float = 20.0
    wait_s: float = 60.0

    @property
    def listens(self) -> bool:
        """Whether the audio is translated and not the text."""
        return self.remote is None

    @property
    def translates_to(self) -> tuple[str, ...]:
        """The languages that are known to be made, as codes; ANY_TARGET among them: all."""
        if self.remote is not None:
            return (ANY_TARGET,)
        return (ENGLISH,) if self.models.translating(None) is not None else ()

    def targets(
        self,
        order: Order,
        *,
        tenant: str,
        past: Transcription | None = None,
        samples_of: SamplesOf = no_samples,
    ) -> list[Target]:
        """Make the targets of *order*. They have the words of *past* that have no translation yet.

        *samples_of*: the audio of a unit, for translators that listen; None: it is gone.
        """
        return [self._target(language, order, tenant, past, samples_of) for language in order.translate_to]

    def _target(
        self,
        language: str,
        order: Order,
        tenant: str,
        past: Transcription | None,
        samples_of: SamplesOf,
    ) -> Target:
        live = order.live is not None
        translator: Translator = self.remote or ListeningTranslator(
            self.models,
            urgency=Urgency.TRANSLATION if live else Urgency.BATCH,
            hints=order.hints,
            text=order.text,
            settings=self.text,
        )
        written = written_language(order)
        options = TargetOptions(
            language=language,
            terms=order.keywords,
            spoken=written,
            tenant=tenant,
            timeout_s=None if self.listens else self.timeout_s,
            wait_s=max(self.wait_s, LISTENING_WAIT_S) if self.listens else self.wait_s,
        )
        backlog = Backlog(language, spoken=written, live=live, by_sound=translator.listens)
        target = Target(options, translator, backlog, samples_of)
        if past is not None:
            done = translated_words(past, language)
            backlog.add(as_written(numbered_words(past), order), done=done)
            last = sorted(past.translations.get(language, {}).values(), key=lambda one: one.first)[-CONTEXT_PAIRS:]
            target.context.extend((source_text(past, one), one.text) for one in last if one.text)
        return target

    async def close(self) -> None:
        if self.remote is not None:
            await self.remote.close()


def written_language(order: Order, *, translated: bool = False) -> str | None:
    """The language of the order's text, if the order says it; *translated*: only where it is not what is spoken."""
    return ENGLISH if order.task == TRANSLATE else None if translated else order.language


def as_written(words: Iterable[NumberedWord], order: Order) -> Iterable[NumberedWord]:
    """Return *words* with the language in which they are written: that of a translation is not the one spoken."""
    if order.task != TRANSLATE:
        return words
    return (replace(one, word=replace(one.word, language=ENGLISH)) for one in words)


def numbered_words(past: Transcription) -> list[NumberedWord]:
    return [NumberedWord(number, word, channel) for number, (word, channel) in enumerate(past.said)]


def translated_words(past: Transcription, language: str, *, given_up: bool = True) -> set[tuple[int | None, int]]:
    """The channels and numbers of words that need not be translated; *given_up*: also of those that cannot be."""
    made = past.translations.get(language, {}).values()
    return {(one.channel, number) for one in made if given_up or one.text for number in range(one.first, one.last + 1)}


def source_text(past: Transcription, entry: TranslationEntry) -> str:
    """What a translation translates."""
    said = past.said[entry.first : entry.last + 1]
    return join_words(word for word, channel in said if channel == entry.channel)


def untranslated(past: Transcription, order: Order) -> str | None:
    """Where there is no translation, for a warning; None if there is one of everything."""
    lacking = []
    for language in order.translate_to:
        backlog = Backlog(language, spoken=written_language(order), live=False)
        done = translated_words(past, language, given_up=False)
        backlog.add(as_written(numbered_words(past), order), done=done)
        if spans := spans_of(backlog.waiting()):
            shown = (f"{seconds(start):.1f} to {seconds(end):.1f} s" for start, end in spans)
            lacking.append(f"into {language}: {', '.join(shown)}")
    return f"no translation {'; '.join(lacking)}" if lacking else None


def translated_characters(past: Transcription) -> int:
    """How many characters were translated, counted for each target."""
    return sum(len(source_text(past, one)) for made in past.translations.values() for one in made.values() if one.text)
