"""The HTTP server that `scribewire serve` runs: uvicorn with our HTTP protocol and WebSocket."""

import contextlib
import functools
import socket
from collections.abc import Iterator, Sequence

import uvicorn
from starlette.types import ASGIApp

from server.config import PREFIX, Config, ConfigError
from server.logs import log
from server.transport.connections import Connections
from server.transport.http_protocol import TrackedHttp
from server.transport.websocket import PatientWebSocket

CUT_OFF_BYTES = 4 * 1024 * 1024
"""A larger WebSocket message ends the connection. Routes refuse messages of a quarter of it with an error."""

GRACE_S = 20  # seconds after which a shutdown closes open connections
REST_S = 75  # longest time between two requests on a connection


def uvicorn_settings(app: ASGIApp, connections: Connections) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        proxy_headers=False,  # access_control.py reads X-Forwarded-For, and only from trusted proxies
        server_header=False,
        lifespan="off",
        timeout_keep_alive=REST_S,
        timeout_graceful_shutdown=GRACE_S,
        http=functools.partial(TrackedHttp, connections),  # type: ignore[arg-type]  # uvicorn only calls it
        ws=PatientWebSocket,
        ws_max_size=CUT_OFF_BYTES,
        ws_ping_interval=20,
        ws_ping_timeout=20,
        ws_per_message_deflate=False,  # audio does not compress, and every connection would keep its tables
    )


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers. libuv accepts one connection in each turn of the event loop."""

    def __init__(
        self,
        app: ASGIApp,
        listening: socket.socket,
        connections: Connections,
        *,
        ready: Sequence[str] = (),
    ) -> None:
        """*ready* are lines that are logged when the port answers."""
        super().__init__(uvicorn_settings(app, connections))
        self._listening = listening
        self.connections = connections
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([self._listening, *(sockets or [])])
        for line in self._ready:
            log.info(line)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(config: Config) -> socket.socket:
    """Bind the port and return its socket. Links need the port's number before it answers. Raises ConfigError."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only for connections whose socket names its protocol. With it on, each answer
    # on a kept connection waits for the client's delayed acknowledgement: 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((config.host, config.port))
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"{PREFIX}HOST and {PREFIX}PORT must be free to listen on, got {config.host}:{config.port} "
            f"({error.strerror})"
        ) from None
    return listening
