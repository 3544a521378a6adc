"""A name server on loopback for tests: it answers over UDP with the addresses that it is told, or not at all."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address

from server.egress.guard import Names

A, NO_SUCH_NAME = 1, 3


@dataclass
class NameServer(asyncio.DatagramProtocol):
    """Answers by *names*. A name that stands there with None is never answered, an unknown one does not exist."""

    names: dict[str, list[str] | None] = field(default_factory=dict)
    afterwards: dict[str, list[str]] = field(default_factory=dict)  # what a name is from the second look on
    asked: list[str] = field(default_factory=list)  # names, once for each question about IPv4 addresses
    address: str = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.address = "{}:{}".format(*transport.get_extra_info("sockname"))

    def datagram_received(self, data: bytes, peer: object) -> None:
        name, kind, question = _question(data)
        found = self.names.get(name, [])
        if found is not None and name in self.asked:
            found = self.afterwards.get(name, found)
        if kind == A:
            self.asked.append(name)
        if found is None:
            return
        addresses = [ip_address(text).packed for text in found] if kind == A else []
        flags = 0x8180 | (0 if name in self.names else NO_SUCH_NAME)
        head = data[:2] + struct.pack("!HHHHH", flags, 1, len(addresses), 0, 0)
        records = [struct.pack("!HHHIH", 0xC00C, A, 1, 0, 4) + address for address in addresses]
        self._transport.sendto(head + question + b"".join(records), peer)

    def resolver(self) -> Names:
        return Names([self.address])


@asynccontextmanager
async def name_server(**names: list[str] | None) -> AsyncIterator[NameServer]:
    """A name server; in *names* an underscore stands for the dot."""
    known = {name.replace("_", "."): addresses for name, addresses in names.items()}
    transport, server = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: NameServer(known), local_addr=("127.0.0.1", 0)
    )
    try:
        yield server
    finally:
        transport.close()


def _question(data: bytes) -> tuple[str, int, bytes]:
    """The name and kind that are asked for, and the bytes that ask."""
    labels, at = [], 12
    while length := data[at]:
        labels.append(data[at + 1 : at + 1 + length].decode().lower())
        at += 1 + length
    (kind,) = struct.unpack_from("!H", data, at + 1)
    return ".".join(labels), kind, data[12 : at + 5]
