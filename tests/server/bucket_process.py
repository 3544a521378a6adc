"""A bucket service in a process of its own: moto's server, which a file can make fail.

Arguments: the port, and the file. "away" in it makes every answer a 503, "lost" cuts the connection after a blob got
its name, "unconditional" lets writes pass whatever they make their condition.
"""

import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from threading import Lock
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

ANSWER = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"

ONE_AT_A_TIME = Lock()  # a bucket decides a conditional write at once, moto in two steps


def fail_by_switch(app: Callable[..., Iterable[bytes]], switch: Path) -> Callable[..., Iterable[bytes]]:
    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        mode = switch.read_text() if switch.exists() else ""
        if mode == "away":
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("503 Service Unavailable", [("Content-Type", "application/xml")])
            return [ANSWER]
        if mode == "unconditional":
            environ.pop("HTTP_IF_NONE_MATCH", None)
        with ONE_AT_A_TIME if "HTTP_IF_NONE_MATCH" in environ else nullcontext():
            body = app(environ, start_response)
        ending = environ["REQUEST_METHOD"] in ("PUT", "POST") and "partNumber" not in environ["QUERY_STRING"]
        if mode == "lost" and ending:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return body

    return answer


if __name__ == "__main__":
    application = fail_by_switch(DomainDispatcherApplication(create_backend_app), Path(sys.argv[2]))
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True)
