"""Tests of scheduler.py under load: which sessions a busy model lets in, and how files make room for speech."""

import asyncio

import numpy as np
import pytest

from pipeline.recognition.engine import RecognitionResult
from pipeline.recognition.scheduler import Overloaded, Scheduler, Urgency
from tests.pipeline.scheduling import Model, request_windows, scheduling, wait_for_calls


class Clock:
    """Replaces the time module."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


clock = Clock()


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the scheduler's time; it moves only with *clock*."""
    monkeypatch.setattr("pipeline.recognition.scheduler.time", clock)
    monkeypatch.setattr("pipeline.recognition.scheduler.time", clock)


class Speakers:
    """Live sessions that send a request after each answer, to a model that takes one at a time."""

    def __init__(self, model: Model, scheduler: Scheduler, count: int) -> None:
        self._model, self._scheduler, self._count = model, scheduler, count
        self._tasks: list[asyncio.Task[RecognitionResult]] = []

    async def speak(self, calls: int, *, call_s: float) -> None:
        for number in range(calls):
            waiting = [task for task in self._tasks if not task.done()]
            orders = [(number, "a", Urgency.PARTIAL)] * (self._count - len(waiting))
            self._tasks = waiting + await request_windows(self._scheduler, *orders)
            await asyncio.sleep(0)  # the call has begun
            clock.now += call_s
            self._model.gate.release()
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def fall_silent(self) -> None:
        self._model.gate.release(self._count)
        await asyncio.gather(*self._tasks)


@pytest.mark.usefixtures("by_hand")
async def test_a_model_that_is_behind_takes_no_more_sessions_until_nobody_waits():
    async with scheduling(max_batch=1) as (model, scheduler):
        speakers = Speakers(model, scheduler, 3)
        await speakers.speak(20, call_s=0.6)  # each waits for the two others
        with pytest.raises(Overloaded):
            scheduler.admit()
        await speakers.fall_silent()
        scheduler.admit()


@pytest.mark.usefixtures("by_hand")
async def test_sessions_that_wait_a_little_leave_room_for_more_but_not_for_many():
    async with scheduling(max_batch=1) as (model, scheduler):
        speakers = Speakers(model, scheduler, 3)
        await speakers.speak(20, call_s=0.3)
        scheduler.admit(1.5)
        with pytest.raises(Overloaded):
            scheduler.admit(3.0)
        await speakers.fall_silent()


@pytest.mark.usefixtures("by_hand")
async def test_partials_that_starve_behind_finals_keep_new_sessions_out():
    async with scheduling(max_batch=1) as (model, scheduler):
        starving = await request_windows(scheduler, (0, "a", Urgency.FINAL), (1, "a", Urgency.PARTIAL))
        for number in range(2, 14):  # each final is heard at once
            finals = await request_windows(scheduler, (number, "b", Urgency.FINAL))
            clock.now += 0.4
            model.gate.release()
            await wait_for_calls(model, number)
        with pytest.raises(Overloaded):
            scheduler.admit()
        model.gate.release(2)
        await asyncio.gather(*starving, *finals)


@pytest.mark.usefixtures("by_hand")
async def test_one_good_moment_is_not_yet_room_for_more():
    async with scheduling(max_batch=1) as (model, scheduler):
        speakers = Speakers(model, scheduler, 3)
        await speakers.speak(20, call_s=1.0)
        await speakers.speak(5, call_s=0.1)
        with pytest.raises(Overloaded):
            scheduler.admit()
        await speakers.speak(60, call_s=0.1)
        scheduler.admit()
        await speakers.fall_silent()


@pytest.mark.usefixtures("by_hand")
async def test_a_file_that_keeps_the_model_busy_does_not_keep_sessions_out():
    async with scheduling(max_batch=1) as (model, scheduler):
        speakers = Speakers(model, scheduler, 3)
        await speakers.speak(20, call_s=1.0)  # the speakers leave, and a file takes what they had
        await speakers.fall_silent()
        tasks = await request_windows(scheduler, *((number, "a", Urgency.BATCH) for number in range(9)))
        for _ in tasks:
            clock.now += 2.0
            model.gate.release()
            await asyncio.sleep(0.01)
            scheduler.admit()
        await asyncio.gather(*tasks)


@pytest.mark.usefixtures("by_hand")
async def test_the_utilisation_rises_with_work_and_falls_with_rest():
    async with scheduling() as (model, scheduler):
        speakers = Speakers(model, scheduler, 1)
        await speakers.speak(20, call_s=2.0)
        assert scheduler.statistics().utilisation > 0.9
        clock.now += 5.0
        assert scheduler.statistics().utilisation < 0.7


@pytest.mark.usefixtures("by_hand")
async def test_a_files_calls_are_short_while_people_speak():
    async with scheduling() as (model, scheduler):

        async def calls(*orders: tuple[int, str, Urgency]) -> list[int]:
            """Return how many windows each call had."""
            before = len(model.calls)
            tasks = await request_windows(scheduler, *orders)  # the first call has begun, the others wait
            model.gate.release(len(tasks))
            await asyncio.gather(*tasks)
            while model.gate.acquire(blocking=False):
                pass
            return [len(call) for call in model.calls[before:]]

        def work() -> None:
            clock.now += window_s * len(model.calls[-1])

        model.fail = work
        window_s = 0.2  # of the model's time
        files = [(number, "f", Urgency.BATCH) for number in range(9)]
        assert await calls(*files) == [1, 4, 4]
        assert await calls((0, "a", Urgency.PARTIAL), *files) == [1, 2, 2, 2, 2, 1]
        assert await calls(files[0], (0, "a", Urgency.PARTIAL), *files[1:]) == [1, 3, 2, 2, 2]
        clock.now += 60.0
        assert await calls(*files) == [1, 4, 4]
        window_s = 1.0
        assert (await calls(*files, *files, *files))[5:8] == [2, 2, 2]  # it has learned how long a window takes


@pytest.mark.usefixtures("by_hand")
async def test_a_file_that_waited_too_long_goes_before_live_windows_once():
    async with scheduling(max_batch=1) as (model, scheduler):
        first = (0, "a", Urgency.PARTIAL)
        files = ((1, "f", Urgency.BATCH), (2, "f", Urgency.BATCH))
        tasks = await request_windows(scheduler, first, *files, (3, "b", Urgency.PARTIAL), (4, "b", Urgency.PARTIAL))
        clock.now += 4.0
        model.gate.release(5)
        await asyncio.gather(*tasks)
        assert model.calls == [[0], [1], [3], [4], [2]]


async def test_while_people_speak_files_leave_a_replica_free():
    async with scheduling(max_batch=1, replicas=2) as (model, scheduler):
        tasks = await request_windows(scheduler, *((n, "f", Urgency.BATCH) for n in range(6)))
        await wait_for_calls(model, 2)
        tasks += await request_windows(scheduler, (10, "a", Urgency.FINAL), (11, "a", Urgency.FINAL))
        for number, live in ((3, [10]), (4, [11])):
            model.gate.release()
            await wait_for_calls(model, number)
            assert model.calls[-1] == live, "live windows take the places of the first files that end"
        model.gate.release()
        await asyncio.sleep(0.02)
        for number in range(5, 9):
            model.gate.release()
            await wait_for_calls(model, number)
            assert under_way(scheduler) == 1, "one call at a time, until people have been silent for long"
        model.gate.release()
        await asyncio.gather(*tasks)


@pytest.mark.usefixtures("by_hand")
async def test_the_whole_machine_is_used_again_some_time_after_the_last_word():
    async with scheduling(max_batch=1, replicas=2) as (model, scheduler):
        model.gate.release()
        await asyncio.gather(*await request_windows(scheduler, (0, "a", Urgency.FINAL)))
        tasks = await request_windows(scheduler, *((n, "f", Urgency.BATCH) for n in range(1, 6)))
        await wait_for_calls(model, 2)
        assert under_way(scheduler) == 1
        clock.now += 60.0
        model.gate.release()
        await wait_for_calls(model, 4)
        assert under_way(scheduler) == 2
        model.gate.release(9)
        await asyncio.gather(*tasks)


@pytest.mark.usefixtures("by_hand")
async def test_a_machine_of_many_cores_hears_several_speakers_at_the_same_time():
    async with scheduling(max_batch=1, replicas=3, file_replicas_during_speech=1) as (model, scheduler):
        tasks = await request_windows(scheduler, *((n, "a", Urgency.PARTIAL) for n in range(5)))
        await wait_for_calls(model, 3)
        assert under_way(scheduler) == 3
        clock.now += 0.4
        assert scheduler.statistics().utilisation == pytest.approx(1 - np.exp(-0.04))
        model.gate.release(5)
        await asyncio.gather(*tasks)


def under_way(scheduler: Scheduler) -> int:
    return scheduler._running
