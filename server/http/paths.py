"""Finds the resource of a path."""

from collections.abc import Awaitable, Callable, Mapping
from operator import itemgetter
from typing import TypeAlias

from starlette.types import ASGIApp, Receive, Scope, Send

Segments: TypeAlias = tuple[str, ...]

_Pattern: TypeAlias = tuple[Callable[[Segments], object], object, Mapping[str, int], ASGIApp]
"""A getter of the literal segments of a path, these segments, the places of its parameters by name, and its app."""


class Paths:
    """An ASGI app that passes requests to *apps* by path, such as "/v1/jobs/{job_id}", and sets scope["path_params"].

    A parameter stands for one segment that is not empty. If two paths fit, the one with a literal segment where they
    first differ is taken. Other paths, and everything that is not HTTP, go to *others*. Raises ValueError if a
    parameter has two names.
    """

    def __init__(self, apps: Mapping[str, ASGIApp], others: ASGIApp) -> None:
        self._others = others
        self._fixed = {path: app for path, app in apps.items() if "{" not in path}
        self._patterns: dict[int, list[_Pattern]] = {}  # by their number of segments
        names: dict[Segments, str] = {}  # by the segments before a parameter, its name
        for path in sorted(apps.keys() - self._fixed.keys(), key=lambda path: [*map(_is_parameter, path.split("/"))]):
            segments = tuple(path.split("/"))
            self._patterns.setdefault(len(segments), []).append(_make_pattern(segments, apps[path]))
            for place, segment in enumerate(segments):
                if _is_parameter(segment) and names.setdefault(segments[:place], segment) != segment:
                    raise ValueError(f"the parameter {segment} is {names[segments[:place]]} in another path")

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        app, scope["path_params"] = self._others, {}
        if scope["type"] == "http":
            path: str = scope["path"].removeprefix(scope["root_path"])
            app = self._fixed.get(path) or self._find(tuple(path.split("/")), scope["path_params"])
        return app(scope, receive, send)

    def _find(self, segments: Segments, parameters: dict[str, str]) -> ASGIApp:
        """Return the app of the path with these segments, and put its parameters into *parameters*."""
        for pick, literals, places, app in self._patterns.get(len(segments), ()):
            if pick(segments) == literals and all(values := [segments[place] for place in places.values()]):
                parameters.update(zip(places, values, strict=True))
                return app
        return self._others


def _make_pattern(segments: Segments, app: ASGIApp) -> _Pattern:
    pick = itemgetter(*(place for place, segment in enumerate(segments) if not _is_parameter(segment)))
    places = {segment[1:-1]: place for place, segment in enumerate(segments) if _is_parameter(segment)}
    return pick, pick(segments), places, app


def _is_parameter(segment: str) -> bool:
    return segment.startswith("{")
