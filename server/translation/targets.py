"""Makes the translations of an order: one for each of its targets, by the operator's translator or the models here."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from pipeline.audio import Samples, seconds
from pipeline.language_names import ENGLISH
from pipeline.recognition.engine import TRANSLATE
from pipeline.recognition.model_set import ModelSet
from pipeline.recognition.scheduler import Urgency
from pipeline.text.options import USUAL_SETTINGS, TextSettings
from pipeline.timeline import Translation as TranslationEntry
from pipeline.transcription import Transcription
from pipeline.translation.listening import ListeningTranslator
from pipeline.translation.target import Target, TargetOptions, Translated
from pipeline.translation.translator import Translator
from pipeline.translation.units import Backlog, NumberedWord, Unit
from server.model.offers import ANY_TARGET
from server.model.orders import Order
from server.translation.remote import ChatTranslator, LibreTranslator


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """The translators of one environment."""

    models: ModelSet
    remote: ChatTranslator | LibreTranslator | None = None  # of the operator; it serves all targets
    text: TextSettings = USUAL_SETTINGS
    timeout_s: float = 20.0
    wait_s: float = 60.0

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
        samples_of: Callable[[Unit], Samples | None] = lambda _: None,
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
        samples_of: Callable[[Unit], Samples | None],
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
            timeout_s=self.timeout_s,
            wait_s=self.wait_s,
        )
        backlog = Backlog(language, spoken=written, live=live, by_sound=translator.listens)
        target = Target(options, translator, backlog, samples_of)
        if past is not None:
            done = sorted(past.translations.get(language, {}).values(), key=lambda one: one.first)
            numbers = {(one.channel, number) for one in done for number in range(one.first, one.last + 1)}
            words = [NumberedWord(number, word, channel) for number, (word, channel) in enumerate(past.said)]
            backlog.add(as_written(words, order), done=numbers)
            context = [" ".join(word.text for word, _ in past.said[one.first : one.last + 1]) for one in done[-2:]]
            target.context.extend(zip(context, (one.text for one in done[-2:]), strict=True))
        return target

    async def close(self) -> None:
        if self.remote is not None:
            await self.remote.close()


def written_language(order: Order) -> str | None:
    """The language of the order's text, if the order says it."""
    return ENGLISH if order.task == TRANSLATE else order.language


def as_written(words: Iterable[NumberedWord], order: Order) -> Iterable[NumberedWord]:
    """Return *words* with the language in which they are written: that of a translation is not the one spoken."""
    if order.task != TRANSLATE:
        return words
    return (replace(one, word=replace(one.word, language=ENGLISH)) for one in words)


def entry_of(target: str, made: Translated) -> TranslationEntry:
    """The entry of a translation for the job's timeline."""
    unit = made.unit
    lag_ms = None if made.lag_s is None else round(1000 * made.lag_s)
    return TranslationEntry(target, unit.first, unit.last, unit.start, unit.end, made.text, unit.channel, lag_ms)


UNAVAILABLE, INCOMPLETE = "translation_unavailable", "translation_incomplete"


def incomplete_message(targets: Sequence[Target]) -> str | None:
    """Where there is no translation, for a warning; None if there is one of everything."""
    lacking = [(target.options.language, target.untranslated()) for target in targets]
    said = [
        f"into {language}: {', '.join(f'{seconds(start):.1f} to {seconds(end):.1f} s' for start, end in spans)}"
        for language, spans in lacking
        if spans
    ]
    return f"no translation {'; '.join(said)}" if said else None
