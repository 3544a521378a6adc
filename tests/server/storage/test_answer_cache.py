"""Tests of answer_cache.py: an answer in memory is given as long as nothing has changed it, and not a moment longer."""

import asyncio

from server.storage.answer_cache import AnswerCache
from tests.server.storing import in_a_loop


class Source:
    """What a backend has: values, and the versions of its topics."""

    def __init__(self) -> None:
        self.value, self.newest, self.reads = "old", 1, 0

    def version(self, _topic: str) -> int | None:
        return self.newest

    async def read(self) -> str:
        self.reads += 1
        read = self.value
        await asyncio.sleep(0)
        return read

    def remember(self, *, max_kept: int = 10, kept_s: float = 60) -> AnswerCache[str]:
        return AnswerCache(self.version, max_kept=max_kept, kept_s=kept_s)


@in_a_loop
async def test_an_answer_is_read_once_and_again_after_a_change():
    source = Source()
    memory = source.remember()
    for _ in range(3):
        assert await memory.get("key", "topic", source.read, keep=bool) == "old"
    assert source.reads == 1
    source.value, source.newest = "new", 2
    assert await memory.get("key", "topic", source.read, keep=bool) == "new"
    assert source.reads == 2


@in_a_loop
async def test_what_was_read_before_a_change_is_not_remembered_after_it():
    source = Source()
    memory = source.remember()
    reading = asyncio.create_task(memory.get("key", "topic", source.read, keep=bool))
    await asyncio.sleep(0)
    assert source.reads == 1
    source.value, source.newest = "new", 2
    assert await reading == "old"  # it was asked for before the change
    assert await memory.get("key", "topic", source.read, keep=bool) == "new"


@in_a_loop
async def test_nothing_is_remembered_while_changes_cannot_be_heard():
    source = Source()
    memory = source.remember()
    await memory.get("key", "topic", source.read, keep=bool)
    source.newest = None
    for _ in range(2):
        await memory.get("key", "topic", source.read, keep=bool)
    assert source.reads == 3


@in_a_loop
async def test_answers_leave_the_memory_by_age_by_number_and_when_told_to():
    source = Source()
    short, few, told = source.remember(kept_s=0.01), source.remember(max_kept=2), source.remember()
    await short.get("key", "topic", source.read, keep=bool)
    await asyncio.sleep(0.02)
    await short.get("key", "topic", source.read, keep=bool)
    assert source.reads == 2
    for key in "abca":
        await few.get(key, "topic", source.read, keep=bool)
    assert source.reads == 6
    await told.get("key", "topic", source.read, keep=bool)
    told.forget("key")
    await told.get("key", "topic", source.read, keep=bool)
    assert source.reads == 8


@in_a_loop
async def test_what_is_not_to_be_kept_is_read_each_time():
    source = Source()
    memory = source.remember()
    for _ in range(2):
        await memory.get("key", "topic", source.read, keep=lambda value: value != "old")
    assert source.reads == 2
