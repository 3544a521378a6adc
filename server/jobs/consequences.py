"""Decides what an attempt means for its job: it ends, or goes back into the queue."""

from pipeline.errors import DecodersBusy, PipelineError
from server.egress.fetch import FetchError
from server.jobs.leases import WorkerRules
from server.jobs.running import Stopped
from server.jobs.sandbox import Canceled
from server.logs import log
from server.model.errors import BlobsAway, DiskFailed, DiskFull
from server.model.jobs import Job, JobError, State, returns_quota
from server.model.leases import HandBack, LeaseLost, Verdict
from server.model.outcomes import Outcome

DISK_FULL_DELAY_S = 30.0
BLOBS_AWAY_DELAY_S = 5.0
DECODERS_BUSY_DELAY_S = 5.0


def after_verdict(verdict: Verdict) -> Outcome | HandBack:
    """What an early stop because of *verdict* means for the job. Raises LeaseLost if another worker may have it."""
    match verdict:
        case Verdict.CANCELED:
            return Outcome(state=State.CANCELED)
        case Verdict.SHUTDOWN:
            return HandBack("shutdown")
        case Verdict.LEASE_LOST | Verdict.STALLED:
            raise LeaseLost


def after_error(error: BaseException | None, rules: WorkerRules, job: Job) -> Outcome | HandBack | None:
    """What the attempt's exception means for *job*; None if there was none. A LeaseLost is raised again."""
    again_s = rules.retry_s * 2 ** (job.attempt - 1)
    match error:
        case None:
            return None
        case LeaseLost():
            raise error
        case Stopped():
            return HandBack("shutdown")
        case Canceled():
            return Outcome(state=State.CANCELED)
        case DiskFull():
            log.error("disk full", extra={"job": job.id})
            return HandBack("disk_full", delay_s=DISK_FULL_DELAY_S)
        case BlobsAway() if not isinstance(error, DiskFailed):  # the disk may fail for this job's file alone
            log.error("bucket away", extra={"job": job.id})
            return HandBack("bucket_away", delay_s=BLOBS_AWAY_DELAY_S)
        case DecodersBusy():
            return HandBack("decoders_busy", delay_s=DECODERS_BUSY_DELAY_S)
        case PipelineError() | FetchError():
            failure = JobError(code=error.code, message=str(error), retryable=error.retryable)
            if error.retryable:
                return HandBack(error.code, delay_s=again_s, error=failure)
            return Outcome(state=State.FAILED, error=failure, return_quota=returns_quota(error.code))
        case _:
            log.error("job broke", exc_info=error, extra={"job": job.id})
            failure = JobError(code="internal", message="the server failed; it has been logged", retryable=True)
            return HandBack(failure.code, delay_s=again_s, error=failure)
