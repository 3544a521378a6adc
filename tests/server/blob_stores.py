"""What the tests of blob stores share."""

from server.storage.ports import BlobStore


async def put(blobs: BlobStore, key: str, data: bytes, **options: bool) -> None:
    async with blobs.create(key, **options) as sink:
        for at in range(0, len(data), 100_000):
            await sink.write(data[at : at + 100_000])


async def read(blobs: BlobStore, key: str, start: int = 0, stop: int | None = None) -> bytes:
    return b"".join([piece async for piece in blobs.read(key, start, stop)])
