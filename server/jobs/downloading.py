"""One job whose audio is at an address: download it, probe it, and return the job to the queue for transcription."""

from dataclasses import replace

from pipeline.ingest.containers import Probe
from server.jobs.running import JobAttempt, source_key
from server.model.leases import HandBack


class DownloadAttempt(JobAttempt):
    """One attempt at a download. If the server stops, the attempt is cancelled, and the next one begins anew."""

    async def work(self) -> HandBack:
        """Download the audio and record its blob. Raises FetchError, the pipeline's errors, DiskFull, LeaseLost."""
        held = self.held
        key = f"{source_key(held.job.id)}/{held.lease.epoch}"
        source = await self._tools.fetcher.fetch(
            held.job.source, asker=held.job.account, blob=key, most=self._plan.upload_bytes
        )
        self.keeper.note_progress()
        probe = await self._probe(key)
        await held.note(source=replace(source, format=probe.format), duration_s=probe.duration_s, blob=key)
        return HandBack("downloaded")

    async def _probe(self, key: str) -> Probe:
        """Probe the stored audio, and delete it if it cannot be used."""
        try:
            return await self._tools.prober.probe(
                key, self.held.job.order, account=self.held.job.account, plan=self._plan
            )
        except BaseException:
            await self._tools.blobs.delete(key)
            raise
