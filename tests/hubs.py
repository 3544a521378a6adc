"""A fake Hugging Face hub on loopback with what a download needs, and caches in the layout of a download."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

from pipeline.weights import PUBLISHED

COMMIT = "c" * 40


def commit_of(repository: str) -> str:
    """The newest commit of a repository: that of a published model is the pinned one."""
    pinned = {known.repository: known.revision for known in PUBLISHED.values()}
    return pinned.get(repository) or COMMIT


@contextmanager
def hub(repositories: Mapping[str, Mapping[str, bytes]]) -> Iterator[str]:
    """Yield the address of a hub that has *repositories*: the files of each owner/name."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path).path.strip("/").split("/")
            if parts[:2] == ["api", "models"] and "/".join(parts[2:4]) in repositories:
                files = repositories["/".join(parts[2:4])]
                rows = [
                    {"type": "file", "path": name, "rfilename": name, "size": len(data), "oid": etag(data)}
                    for name, data in files.items()
                ]
                listing = parts[4:5] == ["tree"]
                name = "/".join(parts[2:4])
                about = rows if listing else {"id": name, "sha": commit_of(name), "siblings": rows}
                self._answer(json.dumps(about).encode())
            elif parts[2:3] == ["resolve"] and (data := repositories.get("/".join(parts[:2]), {}).get(parts[-1])):
                self._answer(data, etag=etag(data), commit=commit_of("/".join(parts[:2])))
            else:
                self._answer(b'{"error":"Repository not found"}', status=404)

        do_HEAD = do_GET  # noqa: N815  http.server calls this name

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  http.server gives the name
            pass

        def _answer(self, body: bytes, *, status: int = 200, etag: str | None = None, commit: str = COMMIT) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Repo-Commit", commit)
            if status == 404:
                self.send_header("X-Error-Code", "RepoNotFound")
            if etag is not None:
                self.send_header("ETag", f'"{etag}"')
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def etag(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


def put_into_cache(cache: Path, repository: str, files: Mapping[str, bytes]) -> Path:
    """Put a model into *cache* in the layout of a download, and return its folder."""
    place = cache / f"models--{repository.replace('/', '--')}"
    commit = commit_of(repository)
    folder = place / "snapshots" / commit
    folder.mkdir(parents=True)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(commit)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder
