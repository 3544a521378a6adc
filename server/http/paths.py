"""Finding the resource of a path. It takes as long with forty paths as with one."""

from collections.abc import Mapping
from typing import TypeAlias

from starlette.types import ASGIApp, Receive, Scope, Send

Node: TypeAlias = dict[str, "Branch"]


class Branch:
    """What follows one segment of a path."""

    def __init__(self) -> None:
        self.named: Node = {}
        self.parameter: tuple[str, Branch] | None = None  # its name, and what follows it
        self.app: ASGIApp | None = None  # that of the path which ends here


class Paths:
    """An ASGI app over *apps* by path, such as "/v1/jobs/{job_id}". A parameter is one segment that is not empty.

    It sets scope["path_params"]. Of two paths that fit, the one counts that names the first segment in which they
    differ. What is not HTTP, and every other path, goes to *others*.
    """

    def __init__(self, apps: Mapping[str, ASGIApp], others: ASGIApp) -> None:
        self._others = others
        self._fixed = {path: app for path, app in apps.items() if "{" not in path}
        self._root = Branch()
        for path, app in apps.items():
            branch = self._root
            for segment in path.split("/"):
                branch = _grown(branch, segment)
            branch.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._others
        parameters: dict[str, str] = {}
        if scope["type"] == "http":
            path: str = scope["path"].removeprefix(scope["root_path"])
            if (fixed := self._fixed.get(path)) is not None:
                app = fixed
            else:
                app, parameters = _found(self._root, path.split("/"), {}) or (self._others, {})
        scope["path_params"] = parameters
        await app(scope, receive, send)


def _grown(branch: Branch, segment: str) -> Branch:
    """What follows *segment* behind *branch*, made if it is new. Raises ValueError for two names of one parameter."""
    if not segment.startswith("{"):
        return branch.named.setdefault(segment, Branch())
    if branch.parameter is None:
        branch.parameter = (segment[1:-1], Branch())
    if branch.parameter[0] != segment[1:-1]:
        raise ValueError(f"the parameter {segment} is {branch.parameter[0]} in another path")
    return branch.parameter[1]


def _found(branch: Branch, segments: list[str], parameters: dict[str, str]) -> tuple[ASGIApp, dict[str, str]] | None:
    """The app of the path of *segments* behind *branch*, with its parameters beside those given."""
    if not segments:
        return None if branch.app is None else (branch.app, parameters)
    first, rest = segments[0], segments[1:]
    if (named := branch.named.get(first)) is not None and (found := _found(named, rest, parameters)):
        return found
    if branch.parameter is None or not first:
        return None
    name, following = branch.parameter
    return _found(following, rest, {**parameters, name: first})
