"""Listing a bucket of any size, a part at a time."""

import obstore
from obstore.store import S3Store

PAGE = 1000  # what a bucket lists in one answer
MAX_LISTED = 20 * PAGE  # blobs that one call looks at


class Listing:
    """Goes round and round through the names in *bucket*."""

    def __init__(self, bucket: S3Store, *, most: int = MAX_LISTED, page: int = PAGE) -> None:
        self._bucket = bucket
        self._most = most
        self._page = page
        self._after: str | None = None

    def go_on(self) -> list[tuple[str, int]]:
        """The next top-level prefixes with the instant of their last change, ms since 1970 UTC. It blocks."""
        found: dict[str, int] = {}
        seen, last = 0, None
        for page in obstore.list(self._bucket, offset=self._after, chunk_size=self._page):
            for blob in page:
                last = blob["path"]
                name = last.partition("/")[0]
                found[name] = max(found.get(name, 0), round(blob["last_modified"].timestamp() * 1000))
            seen += len(page)
            if seen >= self._most:
                break
        self._after = self._next_start(found, last) if seen >= self._most else None
        return sorted(found.items())

    @staticmethod
    def _next_start(found: dict[str, int], last: str | None) -> str | None:
        """Where the next call begins: at the last prefix, which may not have been seen whole and is taken out."""
        if last is None or len(found) == 1:
            return last
        name = last.partition("/")[0]
        del found[name]
        return name
