"""Translates what a job's timeline says into each language of the order.

Words of the timeline come in, entries of the timeline go out. The operator's translator makes the translations, or
else the models here. Sentences that people have corrected are translated again by the operator's translator of texts.
The models here translate audio, which nobody has corrected, so their translations stay as they are.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pipeline.audio import seconds
from pipeline.corrections import Correcting
from pipeline.languages import ENGLISH
from pipeline.recognition.engine import TRANSLATE
from pipeline.recognition.model_set import ModelSet
from pipeline.recognition.scheduler import Urgency
from pipeline.text.options import USUAL_SETTINGS, TextSettings
from pipeline.timeline import (
    Change,
    Entry,
    FinalizedUpTo,
    Notice,
    SegmentEnd,
    Translation,
    TurnEnd,
    Words,
    WordsReplaced,
    unpack,
)
from pipeline.transcription import Transcription
from pipeline.translation.target import (
    CONTEXT_PAIRS,
    GivenUp,
    Happened,
    Outage,
    SamplesOf,
    Target,
    TargetOptions,
    Translated,
    no_samples,
)
from pipeline.translation.translator import (
    ListeningTranslator,
    TranslationRequest,
    Translator,
    TranslatorUnavailable,
    UnusableAnswer,
    answer_of,
)
from pipeline.translation.units import Backlog, NumberedWord, spans_of
from pipeline.words import join_words
from server.background import compute, total_bytes
from server.config import Config
from server.keyed_limits import KeyedTurns
from server.metrics import Metrics
from server.model.jobs import Job
from server.model.offers import ANY_TARGET
from server.model.orders import Order
from server.storage.sql.storage import Storage
from server.translation.remote import ChatTranslator, LibreTranslator, make_translator

log = logging.getLogger(__name__)

UNAVAILABLE, INCOMPLETE = "translation_unavailable", "translation_incomplete"
LISTENING_WAIT_S = 600.0
"""How long the end of a job waits for the models here, which answer late where many windows wait, but do answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translators:
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


class Translations:
    """The translations of one job. run() works until finish() was called and everything is translated."""

    def __init__(
        self,
        order: Order,
        targets: Sequence[Target],
        append: Callable[[Entry], Awaitable[None]],
        metrics: Metrics,
    ) -> None:
        """*append* adds an entry to the job's timeline."""
        self.targets = targets
        self._order = order
        self._append = append
        self._metrics = metrics
        self._outages: dict[tuple[str, int], str] = {}  # by language and beginning
        self._shown: defaultdict[tuple[str, int | None], set[int]] = defaultdict(set)  # the numbers of words

    @property
    def warnings(self) -> list[Mapping[str, str]]:
        """When there were no translations, for the job's record."""
        return [{"code": UNAVAILABLE, "message": "; ".join(self._outages.values())}] if self._outages else []

    def take(self, entries: Iterable[Entry], decided: Mapping[int | None, int]) -> None:
        """Take the next entries of the timeline, after they were stored.

        *decided*: by channel, the position before which everything is decided.
        """
        for entry in entries:
            self._take(entry)
        for channel, position in decided.items():
            for target in self.targets:
                target.reach(channel, position)

    @property
    def begins(self) -> int | None:
        """The position of the first word without a translation; None: all have one."""
        return min((begins for target in self.targets if (begins := target.begins) is not None), default=None)

    def _take(self, entry: Entry) -> None:
        match entry:
            case Words():
                now = asyncio.get_running_loop().time()
                words = [
                    NumberedWord(
                        number,
                        one.word,
                        entry.channel,
                        heard_at=None if one.lag_ms is None else now - one.lag_ms / 1000,
                        final_at=now,
                    )
                    for number, one in enumerate(entry.words, entry.first)
                ]
                for target in self.targets:
                    target.add(as_written(words, self._order))
            case SegmentEnd(forced=forced, channel=channel) if not forced:
                self._close(channel)
            case TurnEnd(channel=channel) | FinalizedUpTo(channel=channel):
                self._close(channel)
            case _:
                pass

    def finish(self) -> None:
        """Note that no further word comes."""
        for target in self.targets:
            target.finish()

    async def run(self) -> None:
        """Translate until finish() was called and nothing waits. Raises what *append* raises, in a group."""
        async with asyncio.TaskGroup() as tasks:
            for target in self.targets:
                write = partial(self._write, target.options.language)
                tasks.create_task(target.run(write), name=f"translate into {target.options.language}")

    def _close(self, channel: int | None) -> None:
        for target in self.targets:
            target.close(channel)

    async def _write(self, language: str, happened: Happened) -> None:
        match happened:
            case Translated(unit, text, lag_s):
                lag_ms = None if lag_s is None else round(1000 * lag_s)
                entry = Translation(language, unit.first, unit.last, unit.start, unit.end, text, unit.channel, lag_ms)
                shown, numbers = self._shown[language, unit.channel], {one.number for one in unit.words}
                self._metrics.translations_withdrawn.inc(len(shown & numbers))
                shown |= numbers
                if lag_s is not None:
                    self._metrics.translation_lag.observe(lag_s)
                await self._append(entry)
            case GivenUp(unit):
                await self._append(Translation(language, unit.first, unit.last, unit.start, unit.end, "", unit.channel))
            case Outage(since, None):
                message = f"no translation into {language} since {seconds(since):.1f} s"
                self._outages[language, since] = message
                await self._append(Notice(UNAVAILABLE, message))
            case Outage(since, until):
                span = f"{seconds(since):.1f} to {seconds(until or 0):.1f} s"
                message = f"translations into {language} were late or missing from {span}"
                self._outages[language, since] = message
                await self._append(Notice(UNAVAILABLE, message))


class CorrectedTranslations:
    """Translates again in the background, a correction of a job after the other."""

    def __init__(self, config: Config, storage: Storage) -> None:
        self._config = config
        self._storage = storage
        self._turns = KeyedTurns()  # of jobs
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, job: Job, changes: Sequence[Change]) -> None:
        """Translate again what *changes* have changed, into every language in which it is."""
        changed = [change for change in changes if isinstance(change, WordsReplaced)]
        if changed and job.order.translate_to and self._config.translation_url is not None:
            task = asyncio.create_task(self._translate(job, changed), name=f"translate again {job.id}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _translate(self, job: Job, changed: Sequence[WordsReplaced]) -> None:
        async with self._turns.turn(job.id):
            stored = await self._storage.timelines.entries(job.id)
            past, state = await compute(job.account, total_bytes(stored), _corrected, stored)
            translator = make_translator(self._config)
            assert translator is not None, "there is a translator, or start() would have returned"
            try:
                for entry in _meeting(past, changed):
                    request = _request(entry, past, state, job)
                    text = answer_of(await translator.translate(request), request) if request.text else ""
                    await self._storage.jobs.translate(job.id, _with_text(entry, text))
            except (TranslatorUnavailable, UnusableAnswer) as error:
                log.warning("a correction is not translated: %s", error, extra={"job": job.id})
            finally:
                await translator.close()


def _corrected(stored: Sequence[bytes]) -> tuple[Transcription, Correcting]:
    past = Transcription.of(map(unpack, stored))
    return past, Correcting(past.said, past.labels, past.corrections)


def _meeting(past: Transcription, changed: Sequence[WordsReplaced]) -> list[Translation]:
    """The translations of which *changed* has words."""
    made = (one for translations in past.translations.values() for one in translations.values())
    return sorted(
        (one for one in made if any(change.first <= one.last and one.first <= change.last for change in changed)),
        key=lambda one: (one.first, one.target),
    )


def _request(entry: Translation, past: Transcription, state: Correcting, job: Job) -> TranslationRequest:
    numbers = [number for number in range(entry.first, entry.last + 1) if past.said[number][1] == entry.channel]
    words = [word for number in numbers for word in state.words_at(number)]
    return TranslationRequest(
        text=join_words(words),
        target=entry.target,
        source=next((word.language for word in words if word.language), written_language(job.order)),
        terms=job.order.keywords,
        keep=tuple(word.text for word in words if word.redacted),
        tenant=job.account,
    )


def _with_text(entry: Translation, text: str) -> Translation:
    return Translation(entry.target, entry.first, entry.last, entry.start, entry.end, text, entry.channel)


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


def source_text(past: Transcription, entry: Translation) -> str:
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
