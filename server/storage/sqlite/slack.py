"""Finds the unused bytes of SQLite's pages, in which copies of deleted rows may remain. Pure.

With secure_delete, SQLite overwrites a deleted row where it is stored. But when it moves rows from one page to another,
copies may stay in the gap of the first page, between its list of cells and the cells. These copies remain when the rows
are deleted. SQLite never reads a gap, so it may be overwritten. The format is fixed:
https://www.sqlite.org/fileformat2.html, section 1.6.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

HEADER_BYTES = 100  # of the file, at the start of the first page
LEAVES, INTERIORS = frozenset({10, 13}), frozenset({2, 5})  # the first byte of a page of a search tree
MAX_PAGES = 2 << 24
"""In larger files the first byte of another kind of page may look like that of a search tree."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What the file's header says about its pages."""

    page_bytes: int
    usable_bytes: int
    mapped: bool  # by auto-vacuum: some pages are maps, which look like those of a search tree


def layout(header: bytes) -> Layout:
    """Read the layout from the file's first HEADER_BYTES."""
    (size,) = struct.unpack_from(">H", header, 16)
    page_bytes = 65536 if size == 1 else size
    return Layout(page_bytes, page_bytes - header[20], mapped=header[52:56] != bytes(4))


def gap(data: bytes, shape: Layout, *, number: int, at: int = 0) -> range:
    """The range of unused bytes of page *number*, which begins at *data*[*at*]; offsets count from there.

    It is empty unless the page certainly belongs to a search tree.
    """
    start = HEADER_BYTES if number == 1 else 0
    kind = data[at + start]
    if shape.mapped or (kind not in LEAVES and kind not in INTERIORS):
        return range(0)
    cells, content = struct.unpack_from(">HH", data, at + start + 3)
    begin = start + (8 if kind in LEAVES else 12) + 2 * cells
    end = content or 65536
    return range(begin, end) if begin <= end <= shape.usable_bytes else range(0)


def find_used_gaps(data: bytes, shape: Layout, *, first_page: int) -> Iterator[int]:
    """The numbers of the pages in *data* whose gap is not all zeros. *data* begins with page *first_page*."""
    for number, at in enumerate(range(0, len(data) - shape.page_bytes + 1, shape.page_bytes), first_page):
        unused = gap(data, shape, number=number, at=at)
        if unused and data.count(0, at + unused.start, at + unused.stop) != len(unused):
            yield number
