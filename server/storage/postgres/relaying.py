"""The Relay: notifications on a channel of their own, heard by the listening connection."""

import asyncio
import base64
from collections.abc import Callable

from server.model.errors import StorageError
from server.storage.postgres.committing import MAX_PAYLOAD_BYTES
from server.storage.postgres.database import PostgresDatabase
from server.storage.postgres.listening import RELAY_CHANNEL
from server.storage.sql.database import Transaction


class PostgresRelay:
    max_bytes = (MAX_PAYLOAD_BYTES - 100) * 3 // 4  # a notification is text

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._handles: list[Callable[[bytes], None]] = []

    async def send(self, message: bytes) -> None:
        if len(message) > self.max_bytes or not self._database.answers:
            return
        text = f"{self._database.boot} {base64.b64encode(message).decode()}"

        def send(tx: Transaction) -> None:
            tx.one("SELECT pg_notify(?, ?)", (RELAY_CHANNEL, text))

        try:
            await self._database.read(send)
        except StorageError:
            return  # as with any message that gets lost

    def listen(self, handle: Callable[[bytes], None]) -> None:
        if handle in self._handles:
            return
        self._handles.append(handle)
        loop = asyncio.get_running_loop()

        def hear(text: str) -> None:
            loop.call_soon_threadsafe(handle, base64.b64decode(text))

        self._database.listen(hear)
