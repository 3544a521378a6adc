"""One live job while this process holds its lease: from its writers' bytes to its end.

The session continues when its writer leaves, and the next writer continues where that one stopped. A connection holds a
Seat while it writes; there is one at a time.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pipeline.audio import RATE, Samples, seconds
from pipeline.errors import EmptyAudio, PipelineError
from pipeline.ingest.memory import MemoryClaim
from pipeline.ingest.notes import IDENTICAL_CHANNELS, identical_channel
from pipeline.speakers.live import LiveSpeakers
from pipeline.timeline import turns_of
from pipeline.transcription import Transcription
from pipeline.translation.target import no_samples
from pipeline.translation.translator import KeptAudio, needed_from
from server.jobs.finishing import Finisher, Recognised, delete_if_gone
from server.jobs.leases import HeldLease
from server.live.intake import bytes_up_to, intake_of
from server.live.models import LiveRecognition
from server.live.parts import SessionParts
from server.live.recording import RECORDING_FAILED, AudioRecorder, recording_key
from server.live.reporting import Reporter, audio_resumes_at, redacted_spans, resumes_at
from server.live.speakers import SpeakerListener, SpeakerStore
from server.logs import log
from server.model.accounts import Plan
from server.model.errors import Refused, StorageError
from server.model.jobs import (
    Artifact,
    JobError,
    LeaseLost,
    LiveProgress,
    Outcome,
    Renewal,
    State,
    Verdict,
    returns_quota,
)
from server.model.orders import CONTAINER, LiveOptions, Source
from server.translation.translations import UNAVAILABLE, Translations, Translators
from server.waiting import racing, set_within

MIN_PAUSE_S = 0.02  # between two checks of a session that is about to end


class Seat:
    """The right to write to a session. Its methods raise Refused ingest_busy once another writer has taken it."""

    def __init__(self, session: "LiveSession") -> None:
        self._session = session
        self.lost = asyncio.Event()
        """Set when another writer takes the seat, because this one sent nothing for a long time."""

    async def write(self, data: bytes) -> bool:
        """Take the next bytes, as fast as they are recognised. Returns False if the session takes no more."""
        self._check()
        return await self._session.take(data)

    def finalize(self) -> float:
        """See LiveSession.finalize()."""
        self.keep_alive()
        return self._session.finalize()

    def keep_alive(self) -> None:
        """Note that the writer is still connected."""
        self._check()
        self._session.note_sign_of_life()

    @property
    def pausing(self) -> bool:
        """Whether no audio has come for LiveRules.pause_s."""
        return self._session.pausing

    def finish(self) -> None:
        self._check()
        self._session.finish()

    def _check(self) -> None:
        if self.lost.is_set():
            raise Refused("ingest_busy", "Another writer has taken over. Only one can write to a session.")


def finished_refusal() -> Refused:
    return Refused("ingest_finished", "The session takes no more audio. Make a new one.")


class LiveSession:
    """Recognises the audio of one job. run() works until the job's end, seat() admits a writer."""

    def __init__(
        self,
        held: HeldLease,
        past: Transcription,
        session: LiveRecognition,
        *,
        parts: SessionParts,
        finisher: Finisher,
        plan: Plan,
        speakers: LiveSpeakers | None,
        speaker_store: SpeakerStore | None,
        decoder_memory: MemoryClaim | None,
        translation: Translators,
    ) -> None:
        """Continue at the end of *past*, which must have no open words.

        *speakers*: None without speaker labels.
        *speaker_store*: None unless voices decide the labels.
        *decoder_memory*: None for raw audio.
        """
        self.job = held.job
        assert self.job.order.live is not None
        self.options: LiveOptions = self.job.order.live
        self.rules = rules = parts.rules
        self.began = time.monotonic()
        self.over = asyncio.Event()  # set when its job has ended, or is no longer in this process
        self.ended_by: Refused | None = None  # why it ended; None: its writer ended it
        self._held = held
        self._session = session
        self._models = parts.engines[self.job.environment]
        self._reporter = Reporter(held, past, parts, speakers)
        self._speakers = None
        if speakers is not None:
            revise = self._reporter.revise
            self._speakers = SpeakerListener(
                speakers, held.job, revise=revise, store=speaker_store, metrics=parts.metrics
            )
        self._storage = parts.storage
        self._finisher = finisher
        self._plan = plan
        self._metrics = parts.metrics
        self._closing = parts.closing
        self.resumed = past.place.begun
        self._heard = audio_resumes_at(past, self.job.order, translation)  # end of the audio taken so far
        self._recognised_from = resumes_at(past.place, self.job.order)
        self._recorder = None
        if self.options.record:
            channels = len(self.job.order.live_channels)
            self._recorder = AudioRecorder(parts.storage.blobs.scratch, channels=channels, start=self._recognised_from)
        self._redacted_before = redacted_spans(past.place)  # a recording begins with the end of the last word
        self._translations, self._kept = self._make_translations(past, translation)
        self._retractions = 0
        self._ending = asyncio.Event()
        self._given_up = asyncio.Event()
        self._ignores_audio = False  # True: the rest of the intake's audio is ignored
        self._max_s = plan.audio_s_per_file + rules.margin_s
        self._ends_at = self.began + self._max_s - (held.claimed_at - self.job.created_at) / 1000
        self._renew_at = time.monotonic() + rules.renew_s
        vad = None if self._models.vad is None else self._models.vad.detector
        self._intake = intake_of(
            self.job.order, parts.isolation, position=self._heard, decoder_memory=decoder_memory, vad=vad
        )
        self._seat: Seat | None = None
        self._vacant = asyncio.Event()
        self._taking = False
        self._sign_of_life = self._audio_at = time.monotonic()

    def _make_translations(
        self, past: Transcription, translation: Translators
    ) -> tuple[Translations | None, KeptAudio | None]:
        """What translates the session's words, and the audio that is kept if translators need it."""
        order = self.job.order
        if not order.translate_to:
            return None, None
        kept = None
        if translation.listens:
            redacted = [(word.start, word.end) for word, _ in past.said if word.redacted]
            kept = KeptAudio(self._heard, lambda: [*redacted, *self._session.redacted_spans()])
        samples_of = no_samples if kept is None else kept.of
        targets = translation.targets(order, tenant=self.job.account, past=past, samples_of=samples_of)
        return Translations(order, targets, self._reporter.translate, self._metrics), kept

    # --- its writers -------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def seat(self) -> AsyncIterator[Seat]:
        """The right to write while the block lasts. Raises Refused ingest_finished, ingest_busy.

        It waits until the present writer leaves, and takes its seat if its connection is probably dead.
        """
        if self._seat is not None:  # it may be the same writer, whose broken connection is still being read
            await set_within(self._vacant, self.rules.seat_s)
        if self.ending:
            raise finished_refusal()
        if self._seat is not None:
            if not self._writer_is_gone:
                raise Refused("ingest_busy", "Another writer is connected to this session. Try again when it has left.")
            self._seat.lost.set()
            self._metrics.live_takeovers.inc()
        seat = self._seat = Seat(self)
        self._vacant.clear()
        self.note_sign_of_life()
        try:
            yield seat
        finally:
            if self._seat is seat:
                self._seat = None
                self._vacant.set()
                self.note_sign_of_life()

    async def take(self, data: bytes) -> bool:
        """Take the next bytes, as fast as they are recognised. Returns False if the session takes no more.

        Cancelling it loses and repeats nothing. A writer that waits here does not count as silent.
        """
        if self.ending:
            return False
        self._taking = True
        try:
            for at in range(0, len(data), self._intake.piece_bytes):
                if self.options.encoding != CONTAINER:
                    await self._wait_until_caught_up()  # also for writers that left without waiting
                samples = await self._intake.take(data[at : at + self._intake.piece_bytes])
                if len(samples):
                    await self._feed(samples)
        finally:
            self._taking = False
            self.note_sign_of_life()
            if data:
                self._audio_at = self._sign_of_life
        if self._intake.received_bytes > self._plan.upload_bytes:
            most = self._plan.upload_bytes
            self.finish(Refused("payload_too_large", f"The plan takes {most} bytes of audio. Make a new session."))
        return not self.ending

    def note_sign_of_life(self) -> None:
        """Begin to count the writer's silence now."""
        self._sign_of_life = time.monotonic()

    @property
    def pausing(self) -> bool:
        """See Seat.pausing. Audio that waits for recognition has come."""
        return not self._taking and time.monotonic() - self._audio_at >= self.rules.pause_s

    @property
    def _silent_s(self) -> float:
        return time.monotonic() - self._sign_of_life

    @property
    def _writer_is_gone(self) -> bool:
        """Whether there is no writer, or one whose connection is probably dead."""
        return self._seat is None or (not self._taking and self._silent_s >= self.rules.takeover_s)

    @property
    def _patience_s(self) -> float:
        """How much longer the session waits for its writer: for ever while audio waits for recognition."""
        if self._taking:
            return math.inf
        return (self.rules.writerless_s if self._seat is None else self.rules.idle_s) - self._silent_s

    @property
    def _overdue(self) -> Refused | None:
        """Why the session must end, if it has waited for too long."""
        rules = self.rules
        if not self._taking and time.monotonic() - self._audio_at >= rules.audioless_s:
            return Refused("ingest_idle", f"No audio came for {rules.audioless_s:g} s. Make a new session.")
        if self._patience_s > 0:
            return None
        if self._seat is None:
            return Refused("ingest_idle", f"No writer came back within {rules.writerless_s:g} s. Make a new session.")
        return Refused("ingest_idle", f"Neither audio nor keep_alive came for {rules.idle_s:g} s. Make a new session.")

    @property
    def ending(self) -> bool:
        """Whether the session takes no more audio. What it has is still being recognised."""
        return self._ending.is_set()

    def count_lost_writer(self) -> None:
        """Note that a writer's connection ended. It counts as lost unless the session is ending anyway."""
        if not self.ending:
            self._metrics.live_dropped.inc()

    def finalize(self) -> float:
        """Decide all words of the audio so far, as if the speaker had stopped.

        Returns the end of that audio in seconds. An event `finalized` with this time follows,
        unless has_finalized() is already true for it.
        """
        if self.ending:
            return self.finalized
        return seconds(self._session.finalize())

    @property
    def finalized(self) -> float:
        """The end of the audio that finalize() has decided, in seconds. The log has all words before it."""
        return self._reporter.finalized_s

    async def has_finalized(self, at_s: float) -> bool:
        """Return whether *finalized* has reached *at_s*. Readers may see its event a moment earlier."""
        return await self._reporter.has_finalized(at_s)

    def finish(self, why: Refused | None = None) -> None:
        """Take no more audio and finish. *why* is given if the writer did not ask for the end."""
        if not self.ending:
            self.ended_by = why
            self._ending.set()

    def give_up(self) -> None:
        """Release the session to another node, to which its writer has moved. Ignored while a writer is here."""
        if self._writer_is_gone and not self.ending and self.options.encoding != CONTAINER:
            self._given_up.set()

    def renew_soon(self) -> None:
        """Renew the lease at the next look, which tells whether the job was canceled or deleted."""
        self._renew_at = 0.0

    def progress(self) -> LiveProgress:
        """How much audio has arrived and how much of it is settled."""
        statistics = self._session.statistics()
        raw = self.options.encoding != CONTAINER
        return LiveProgress(
            self._intake.received_bytes,
            seconds(self._heard),
            settled_bytes=bytes_up_to(self._needed_from, self.options) if raw else None,
            lag_s=statistics.lag_s if statistics.counts.words else None,
        )

    @property
    def _needed_from(self) -> int:
        """The position from which a restart needs the audio again."""
        settled = self._reporter.resume_position
        if self._kept is None or self._translations is None:
            return settled
        return needed_from(settled, self._translations.begins)

    # --- life --------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until the job has ended, was released or lost its lease. Errors are logged and sent to the writer."""
        try:
            with self._metrics.live_sessions.track_inprogress():
                await self._live_and_end()
        except LeaseLost:
            self._metrics.leases_lost.inc()
            log.warning("live session lost", extra={"job": self.job.id})
            await delete_if_gone(self.job.id, self._storage.jobs, self._storage.blobs)
        except Exception:  # noqa: BLE001  an error of one session must not end the others
            self._metrics.faults.labels("live session").inc()
            log.exception("live session broke", extra={"job": self.job.id})
            self.ended_by = Refused("internal", "The server failed. Connect again to go on.")
            await self._release()
        finally:
            self._ignores_audio = True
            self._ending.set()
            self.over.set()
            self._intake.close()
            self._reporter.close()
            if self._recorder is not None:
                self._recorder.close()

    async def _live_and_end(self) -> None:
        async with racing(self._work(), self._watch()) as (work, watch):
            if work.done():
                await self._end_job(work.result())
                return
        match watch.result():
            case Verdict.CANCELED:
                separate = self.job.order.separate
                heard_s = seconds(self._heard) * len(self.job.order.live_channels) if separate else None
                outcome = Outcome(state=State.CANCELED, duration_s=seconds(self._heard), heard_s=heard_s)
                await self._finisher.finish(self._held, outcome)
            case Verdict.SHUTDOWN:
                await self._release()
            case Verdict.LEASE_LOST:
                raise LeaseLost

    async def _release(self) -> None:
        """Release the job for its next writer, in any process. If that fails, the lease expires."""
        try:
            await self._held.release()
        except LeaseLost:
            log.info("live session is already in other hands", extra={"job": self.job.id})
        except StorageError:
            log.exception("live session cannot be handed back", extra={"job": self.job.id})

    async def _work(self) -> PipelineError | None:
        """Recognise everything until the audio ends. Returns the error of audio that could not be decoded."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._recognise(), name="recognise")
                tasks.create_task(self._write_events(), name="write events")
                tasks.create_task(self._finish_intake(), name="finish intake")
                if self._speakers is not None:
                    tasks.create_task(self._speakers.run(), name="speakers")
                if self._translations is not None:
                    tasks.create_task(self._translations.run(), name="translations")
                broken = await tasks.create_task(self._run_intake(), name="intake")
                self._session.finish()
                if self._speakers is not None:
                    self._speakers.end_audio()
        except BaseExceptionGroup as group:
            if group.subgroup(LeaseLost):
                raise LeaseLost from group
            raise
        return broken

    async def _recognise(self) -> None:
        try:
            await self._session.run()
        finally:
            self._ignores_audio = True
            self._ending.set()

    async def _run_intake(self) -> PipelineError | None:
        """Take what the intake decodes by itself, and its notes for readers. Returns the error of undecodable audio."""
        try:
            async for item in self._intake.items():
                if isinstance(item, str):
                    await self._reporter.report(item)
                elif len(item):
                    await self._feed(item)
        except EmptyAudio:
            return None  # there was no audio
        except PipelineError as error:
            self.ended_by = Refused(error.code, str(error))  # also if the writer had ended it before
            return error
        finally:
            self._ending.set()
        return None

    async def _finish_intake(self) -> None:
        await self._ending.wait()
        await self._intake.finish()

    async def _write_events(self) -> None:
        """Write the session's events to the journal. All that are ready are written in one call."""
        events = self._session.events()
        async for first in events:
            statistics = self._session.statistics()
            happened = [first, *[await anext(events) for _ in range(statistics.unread)]]
            decided = self._session.decided_positions()
            entries = await self._reporter.write(happened, received=self._heard, decided=decided)
            if self._translations is not None:
                self._translations.take(entries, decided)
            self._metrics.final_words_changed.inc(statistics.retractions - self._retractions)
            self._retractions = statistics.retractions
        if self._translations is not None:
            self._translations.finish()

    async def _feed(self, samples: Samples) -> None:
        """Pass samples from the intake to the session, up to the plan's longest audio."""
        if self._ignores_audio:
            return
        left = self._plan.audio_s_per_file * RATE - self._heard
        if len(samples) > left:
            samples = samples[:left]
            max_s = self._plan.audio_s_per_file
            self._reporter.warn("audio_truncated", f"the audio was cut at {max_s} s, the plan's most")
            self.finish(Refused("audio_too_long", f"The plan takes {max_s} s of audio. Make a new session."))
        if len(samples):
            self._heard += len(samples)
            if self._kept is not None:
                self._kept.add(samples, needed_from=self._needed_from)
                samples = samples[max(0, self._recognised_from - (self._heard - len(samples))) :]
                if not len(samples):  # they are there for a translation alone
                    return
            if self._recorder is not None:
                self._recorder.add(samples)
            if self._speakers is not None:
                self._speakers.add(samples)
            await self._session.feed(samples)
            if self._speakers is not None:
                await self._speakers.wait_until_caught_up()

    async def _wait_until_caught_up(self) -> None:
        """Wait until little audio is unrecognised, and the speakers of little audio are unknown."""
        await self._session.wait_for_room()
        if self._speakers is not None:
            await self._speakers.wait_until_caught_up()

    async def _end_job(self, broken: PipelineError | None) -> None:
        """End the job with all recognised words, or as failed if no audio could be decoded."""
        received_bytes, duration = self._intake.received_bytes, max(self._heard, self._reporter.reached)
        if self.options.encoding != CONTAINER:  # what a server before this one had is not always asked for again
            received_bytes = max(received_bytes, bytes_up_to(duration, self.options))
        source = Source(type="live", bytes=received_bytes, format=self.options.encoding)
        await self._held.note(source=source, stage="writing")  # first, for a process that has to go on here
        if broken is not None and self._heard == 0:
            error = JobError(code=broken.code, message=str(broken), retryable=broken.retryable)
            outcome = Outcome(state=State.FAILED, error=error, return_quota=returns_quota(error.code))
            await self._finisher.finish(self._held, outcome)
            return
        if broken is not None:
            self._reporter.warn(broken.code, str(broken))
        self._reporter.conclude(self._intake.notes)
        copies = {} if self.resumed else self._session.copies()
        for copy, original in copies.items():
            self._reporter.warn(IDENTICAL_CHANNELS, identical_channel(copy, original))
        audio = await self._store_recording()
        if self._speakers is not None:  # before the end, for a process that has to go on here
            await self._held.append([turns_of(await self._speakers.finish(), until=duration)])
        warnings = [*self._reporter.warnings.values()]
        if self._translations is not None:
            warnings = [one for one in warnings if one["code"] != UNAVAILABLE] + self._translations.warnings
        recognised = Recognised(
            engine=self._models.engine,
            model_of=self._models.models.name_for,
            duration=duration,
            warnings=warnings,
            copies=len(copies),
            audio=audio,
        )
        await self._finisher.complete(self._held, recognised)

    async def _store_recording(self) -> Artifact | None:
        """Store the recording, if it was ordered: the audio that came to this process."""
        if self._recorder is None:
            return None
        recorder, key = self._recorder, recording_key(self.job.id, epoch=self._held.lease.epoch)
        blobs, redacted = self._storage.blobs, [*self._redacted_before, *self._session.redacted_spans()]
        audio = await self._finisher.store(self._held, key, lambda: recorder.store(key, blobs, redacted=redacted))
        if self._recorder.torn:
            self._reporter.warn(**RECORDING_FAILED)
        elif self.resumed:
            self._reporter.warn("recording_incomplete", "the audio before a restart of the server was not kept")
        return audio

    # --- reasons to stop ---------------------------------------------------------------------------------------------

    async def _watch(self) -> Verdict:
        """Renew the lease, and end a session without a writer. Returns why the session must stop at once."""
        while True:
            if self._closing.is_set() and (verdict := self._close()) is not None:
                return verdict
            if self._given_up.is_set():
                return Verdict.SHUTDOWN
            try:
                if (verdict := await self._check_job()) is not None:
                    return verdict
                await self._reporter.store_long_silence(self._session.decided_positions, received=self._heard)
            except StorageError:
                log.exception("live session cannot reach its storage", extra={"job": self.job.id})
            self._held.check()
            if self._recorder is not None:
                await self._recorder.flush()
            self._finish_if_due()
            await self._pause()

    def _close(self) -> Verdict | None:
        """Stop because the server stops: at once with raw audio, which can continue; a container is finished first."""
        if self.options.encoding != CONTAINER:
            return Verdict.SHUTDOWN
        self.finish(Refused("shutting_down", "The server is restarting. Make a new session."))
        return None

    async def _check_job(self) -> Verdict | None:
        """Renew the lease if that is due. Returns why the session must stop."""
        if (now := time.monotonic()) < self._renew_at:
            return None
        answer = await self._held.renew()
        self._renew_at = now + self.rules.renew_s
        return {Renewal.LOST: Verdict.LEASE_LOST, Renewal.CANCEL_REQUESTED: Verdict.CANCELED}.get(answer)

    def _finish_if_due(self) -> None:
        """End the session if it is too old or has waited too long for its writer."""
        if time.monotonic() >= self._ends_at:
            self.finish(Refused("audio_too_long", f"This plan's sessions may last {self._max_s:g} s. Make a new one."))
        elif (why := self._overdue) is not None:
            self.finish(why)

    async def _pause(self) -> None:
        """Wait until the next check. When the server begins to stop, the wait ends."""
        patience_s = math.inf if self.ending else self._patience_s
        pause_s = min(self.rules.look_s, max(patience_s, MIN_PAUSE_S))
        if self._closing.is_set():
            await asyncio.sleep(pause_s)
        else:
            await set_within(self._closing, pause_s)
