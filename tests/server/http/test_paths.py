"""Tests of paths.py: which resource answers which path."""

import asyncio
from typing import Any

import pytest

from server.http.paths import Paths

TABLE = ("/", "/healthz", "/v1/jobs", "/v1/jobs/{job_id}", "/v1/jobs/{job_id}/outputs/{name}", "/v1/jobs/new")


def route(path: str, *, root: str = "", kind: str = "http") -> tuple[str, dict[str, str]]:
    """Return the path of the table that answers *path*, and the parameters that it gets."""
    seen: list[tuple[str, dict[str, str]]] = []

    def app_named(name: str) -> Any:
        async def app(scope: Any, _receive: Any, _send: Any) -> None:
            seen.append((name, scope["path_params"]))

        return app

    paths = Paths({path: app_named(path) for path in TABLE}, app_named("others"))
    asyncio.run(paths({"type": kind, "path": path, "root_path": root}, None, None))  # type: ignore[arg-type]  not called
    return seen[0]


@pytest.mark.parametrize("path", ["/", "/healthz", "/v1/jobs", "/v1/jobs/new"])
def test_a_path_without_parameters_is_found_as_it_is(path: str) -> None:
    assert route(path) == (path, {})


def test_parameters_are_the_segments_in_their_place() -> None:
    assert route("/v1/jobs/job_1") == ("/v1/jobs/{job_id}", {"job_id": "job_1"})
    found = route("/v1/jobs/new/outputs/srt")
    assert found == ("/v1/jobs/{job_id}/outputs/{name}", {"job_id": "new", "name": "srt"})


def test_a_segment_that_is_written_like_a_parameter_is_its_value() -> None:
    assert route("/v1/jobs/{job_id}") == ("/v1/jobs/{job_id}", {"job_id": "{job_id}"})


@pytest.mark.parametrize(
    "path", ["", "/v1", "//", "/healthz/", "/v1/jobs/", "/v1/jobs//outputs/srt", "/v1/jobs/job_1/outputs", "//v1/jobs"]
)
def test_other_paths_and_slashes_too_many_are_nobodys(path: str) -> None:
    assert route(path) == ("others", {})


def test_the_root_path_is_no_part_of_the_path() -> None:
    assert route("/sandbox/v1/jobs", root="/sandbox") == ("/v1/jobs", {})


def test_websockets_are_not_looked_for() -> None:
    assert route("/v1/jobs", kind="websocket") == ("others", {})


def test_a_parameter_has_one_name() -> None:
    async def app(_scope: Any, _receive: Any, _send: Any) -> None: ...

    with pytest.raises(ValueError, match="job_id"):
        Paths({"/v1/jobs/{job_id}": app, "/v1/jobs/{id}/events": app}, app)
