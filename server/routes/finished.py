"""Requests of other services' clients wait for a finished job: how long, and what they are told without one."""

from server.http.codes import CODES
from server.http.problems import Problem
from server.model.jobs import Job, State

HOLD_S = 600  # such a client knows no way to ask again


def check_shown(job: Job, asked_at: int) -> None:
    """Return if *job* has results for a request that came at *asked_at*. Raises Problem with the reason if not."""
    if job.state is not State.COMPLETED:
        raise unsuccessful(job)
    if not job.shows_results(asked_at):
        raise Problem("output_not_found", "the result was handed over before, and then erased")


def unsuccessful(job: Job) -> Problem:
    """Why there is no transcript."""
    if not job.terminal:
        return Problem("unfinished", f"the job goes on; look at /v1/jobs/{job.id}")
    if job.error is None:
        return Problem("job_not_completed", f"the job is {job.state}")
    code = job.error.code if job.error.code in CODES else "internal"
    return Problem(code, job.error.message)
