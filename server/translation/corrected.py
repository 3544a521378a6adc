"""Translates sentences again that people have corrected, by the operator's translator of texts.

The models here translate audio, which nobody has corrected, so their translations stay as they are.
"""

import asyncio
import logging
from collections.abc import Sequence

from pipeline.corrections import Correcting
from pipeline.timeline import Change, Translation, WordsReplaced, unpack
from pipeline.transcription import Transcription
from pipeline.translation.translator import TranslationRequest, TranslatorUnavailable, UnusableAnswer, answer_of
from pipeline.words import join_words
from server.background import compute, total_bytes
from server.config import Config
from server.keyed_limits import KeyedTurns
from server.model.jobs import Job
from server.storage.sql.storage import Storage
from server.translation.remote import make_translator
from server.translation.targets import written_language

log = logging.getLogger(__name__)


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
