"""One live job while this process holds its lease: from its writers' bytes to its end.

The session continues when its writer leaves, and the next writer continues where that one stopped.
"""

import asyncio
import math
import time
from contextlib import AbstractAsyncContextManager

from pipeline.audio import RATE, Samples, seconds
from pipeline.errors import EmptyAudio, PipelineError
from pipeline.ingest.crosstalk import IDENTICAL_CHANNELS, identical_channel
from pipeline.ingest.memory import MemoryPart
from pipeline.speakers.live import LiveSpeakers
from server.jobs.leases import HeldLease
from server.jobs.outputs import delete_if_gone
from server.live.ending import Endings, LiveResult
from server.live.intake import Intake, bytes_up_to, intake_of
from server.live.journal import Journal
from server.live.models import LiveRecognition
from server.live.parts import SessionParts
from server.live.recording import RECORDING_FAILED, AudioRecorder, recording_key
from server.live.resuming import SessionPast
from server.live.speaker_store import SpeakerStore
from server.live.speakers import SpeakerListener
from server.live.writers import Seat, Writers
from server.logs import log
from server.model.accounts import Plan
from server.model.errors import Refused, StorageError
from server.model.jobs import JobError, LiveProgress
from server.model.leases import LeaseLost, Renewal, Verdict
from server.model.orders import CONTAINER, LiveOptions
from server.model.outcomes import Artifact
from server.waiting import racing, set_within

MIN_PAUSE_S = 0.02  # between two checks of a session that is about to end


class LiveSession:
    """Recognises the audio of one job. run() works until the job's end, seat() admits a writer."""

    def __init__(
        self,
        held: HeldLease,
        past: SessionPast,
        session: LiveRecognition,
        *,
        parts: SessionParts,
        plan: Plan,
        speakers: LiveSpeakers | None,
        speaker_store: SpeakerStore | None,
        part: MemoryPart | None,
    ) -> None:
        """Continue at the end of *past*, which must have no open words.

        *speakers*: None without speaker labels.
        *speaker_store*: None unless voices decide the labels.
        *part*: the memory of a container's decoder. None for raw audio.
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
        self._journal = Journal(held, past, parts, speakers)
        self._speakers = None
        if speakers is not None:
            revise = self._journal.revise
            self._speakers = SpeakerListener(
                speakers, held.job, revise=revise, store=speaker_store, metrics=parts.metrics
            )
        self._storage = parts.storage
        self._endings = Endings(parts)
        self._plan = plan
        self._metrics = parts.metrics
        self._closing = parts.closing
        channels = len(self.job.order.live_channels)
        self.resumed = past.begun
        self._heard = past.resumes_at  # end of the audio taken so far
        self._recorder = None
        if self.options.record:
            self._recorder = AudioRecorder(parts.storage.blobs.scratch, channels=channels, start=self._heard)
        self._redacted_before = past.redacted_spans  # a recording begins with the end of the last word
        self._retractions = 0
        self._ending = asyncio.Event()
        self._given_up = asyncio.Event()
        self._ignores_audio = False  # True: the rest of the intake's audio is ignored
        self._max_s = plan.audio_s_per_file + rules.margin_s
        self._ends_at = self.began + self._max_s - (held.claimed_at - self.job.created_at) / 1000
        self._renew_at = time.monotonic() + rules.renew_s
        self._intake = self._make_intake(parts, part)
        self._writers = Writers(self, self._intake, rules, parts.metrics, max_bytes=plan.upload_bytes)

    def _make_intake(self, parts: SessionParts, part: MemoryPart | None) -> Intake:
        return intake_of(
            self.job.order,
            parts.isolation,
            self._feed,
            backpressure=self._wait_until_caught_up,
            position=self._heard,
            part=part,
            voice=None if (vad := parts.engines[self.job.environment].vad) is None else vad.detector,
            report=self._journal.report,
        )

    # --- for writers -------------------------------------------------------------------------------------------------

    def seat(self) -> AbstractAsyncContextManager[Seat]:
        """The right to write while the block lasts. Raises Refused ingest_finished, ingest_busy."""
        return self._writers.seat()

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
        return self._journal.finalized_s

    async def has_finalized(self, at_s: float) -> bool:
        """Return whether *finalized* has reached *at_s*. Readers may see its event a moment earlier."""
        return await self._journal.has_finalized(at_s)

    def finish(self, why: Refused | None = None) -> None:
        """Take no more audio and finish. *why* is given if the writer did not ask for the end."""
        if not self.ending:
            self.ended_by = why
            self._ending.set()

    def give_up(self) -> None:
        """Release the session to another node, to which its writer has moved. Ignored while a writer is here."""
        if self._writers.gone and not self.ending and self.options.encoding != CONTAINER:
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
            settled_bytes=bytes_up_to(self._journal.resume_position, self.options) if raw else None,
            lag_s=statistics.lag_s if statistics.counts.words else None,
        )

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
            self.ended_by = Refused("internal", "the server failed; connect again to go on")
            await self._release()
        finally:
            self._ignores_audio = True
            self._ending.set()
            self.over.set()
            self._intake.close()
            self._journal.close()
            if self._recorder is not None:
                self._recorder.close()

    async def _live_and_end(self) -> None:
        async with racing(self._work(), self._watch()) as (work, watch):
            if work.done():
                await self._end_job(work.result())
                return
        match watch.result():
            case Verdict.CANCELED:
                await self._endings.cancel(self._held, duration=self._heard)
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
        try:
            await self._intake.run()
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
            await self._journal.write(happened, received=self._heard, decided=self._session.decided_positions())
            self._metrics.final_words_changed.inc(statistics.retractions - self._retractions)
            self._retractions = statistics.retractions

    async def _feed(self, samples: Samples) -> None:
        """Pass samples from the intake to the session, up to the plan's longest audio."""
        if self._ignores_audio:
            return
        left = self._plan.audio_s_per_file * RATE - self._heard
        if len(samples) > left:
            samples = samples[:left]
            max_s = self._plan.audio_s_per_file
            self._journal.warn("audio_truncated", f"the audio was cut at {max_s} s, the plan's most")
            self.finish(Refused("audio_too_long", f"the plan takes {max_s} s of audio"))
        if len(samples):
            self._heard += len(samples)
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
        received_bytes, duration = self._intake.received_bytes, max(self._heard, self._journal.reached)
        if self.options.encoding != CONTAINER:  # what a server before this one had is not always asked for again
            received_bytes = max(received_bytes, bytes_up_to(duration, self.options))
        if broken is not None and self._heard == 0:
            error = JobError(code=broken.code, message=str(broken), retryable=broken.retryable)
            await self._endings.fail(self._held, error, received_bytes=received_bytes)
            return
        if broken is not None:
            self._journal.warn(broken.code, str(broken))
        self._journal.conclude(self._intake.notes)
        copies = {} if self.resumed else self._session.copies()
        for copy, original in copies.items():
            self._journal.warn(IDENTICAL_CHANNELS, identical_channel(copy, original))
        audio = await self._store_recording()
        result = LiveResult(
            duration=duration,
            received_bytes=received_bytes,
            warnings=tuple(self._journal.warnings.values()),
            copies=len(copies),
            audio=audio,
            speakers=None if self._speakers is None else await self._speakers.finish(),
        )
        await self._endings.complete(self._held, result)

    async def _store_recording(self) -> Artifact | None:
        """Store the recording, if it was ordered: the audio that came to this process."""
        if self._recorder is None:
            return None
        recorder, key = self._recorder, recording_key(self.job.id, epoch=self._held.lease.epoch)
        blobs, redacted = self._storage.blobs, [*self._redacted_before, *self._session.redacted_spans()]
        audio = await self._endings.store_when_reachable(
            self._held, key, lambda: recorder.store(key, blobs, redacted=redacted)
        )
        if self._recorder.torn:
            self._journal.warn(**RECORDING_FAILED)
        elif self.resumed:
            self._journal.warn("recording_incomplete", "the audio before a restart of the server was not kept")
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
                await self._journal.store_long_silence(self._session.decided_positions, received=self._heard)
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
        self.finish(Refused("shutting_down", "the server is restarting"))
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
            self.finish(Refused("audio_too_long", f"a session of this plan may last {self._max_s:g} s"))
        elif (why := self._writers.overdue) is not None:
            self.finish(why)

    async def _pause(self) -> None:
        """Wait until the next check. When the server begins to stop, the wait ends."""
        patience_s = math.inf if self.ending else self._writers.patience_s
        pause_s = min(self.rules.look_s, max(patience_s, MIN_PAUSE_S))
        if self._closing.is_set():
            await asyncio.sleep(pause_s)
        else:
            await set_within(self._closing, pause_s)
