"""Answers requests of other services' clients with the results of a finished job, or with the reason for none."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from server.http.headers import warning_headers
from server.http.problems import CODES, Problem
from server.model.jobs import Job, State
from server.requests.request import RouteParts, answer_when_over

HOLD_S = 600  # longest wait; these clients cannot poll
RESULT_CODES = ("engine_error", "engine_timeout", "unfinished", "job_not_completed", "output_not_found")
"""Error codes of every operation that calls answer_finished()."""


async def answer_finished(
    request: Request, job: Job, make: Callable[[Job], Awaitable[Response]], parts: RouteParts
) -> Response:
    """Wait for the end of *job*, and return the answer that *make* makes. Raises Problem if there are no results."""

    async def answer(over: Job, asked_at: int) -> Response:
        if over.state is not State.COMPLETED:
            raise unsuccessful(over)
        if not over.shows_results(asked_at):
            raise Problem("output_not_found", "The result was delivered before, and then erased. Send the audio again.")
        response = await make(over)
        response.headers.update(warning_headers(over.warnings))
        return response

    return await answer_when_over(request, job, parts, answer, wait_s=HOLD_S)


def unsuccessful(job: Job) -> Problem:
    """The reason why there is no transcript."""
    if not job.terminal:
        return Problem("unfinished", f"The job goes on. Look at /v1/jobs/{job.id}.")
    if job.error is None:
        return Problem("job_not_completed", f"the job is {job.state}")
    code = job.error.code
    if code.startswith("source_"):
        code = "source_failed"
    elif code == "queue_timeout":
        code = "queue_full"
    return Problem(code if code in CODES else "internal", job.error.message)
