"""Tests of scheduler.py: which windows are recognised next and together, and failing, hanging and busy models."""

import asyncio
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from pipeline.audio import RATE, Samples
from pipeline.errors import EngineFailed, EngineTimeout
from pipeline.recognition.engine import DecodeRequest, Heard
from pipeline.recognition.scheduler import Overloaded, Scheduler, Urgency


@dataclass
class Model:
    """An engine whose calls wait until they are released. It records the requests of each call."""

    max_batch: int = 4
    name: str = "script"
    model: str = "script"
    languages: frozenset[str] = frozenset({"en"})
    translates: bool = False
    longest_job: int = RATE
    replicas: int = 1
    file_replicas_amid_speech: int = 1
    fail: Callable[[], Exception | None] = lambda: None
    calls: list[list[int]] = field(default_factory=list)
    gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def bucket(self, request: DecodeRequest) -> Hashable:
        return len(request.samples)

    def hear(self, requests: Sequence[DecodeRequest]) -> list[Heard]:
        self.calls.append([request.start for request in requests])
        self.gate.acquire()
        if (error := self.fail()) is not None:
            raise error
        return [Heard((), "en", 1.0, float(-request.start), 0.0) for request in requests]

    def detect_language(self, windows: Sequence[Samples]) -> tuple[str, float]:
        return "en", len(windows) / 10

    def close(self) -> None:
        pass


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


def window(start: int, length: int = 100, *, final: bool = True) -> DecodeRequest:
    return DecodeRequest(samples=np.zeros(length, np.float32), start=start, final=final)


async def asked(
    scheduler: Scheduler, *orders: tuple[int, str, Urgency], length: int = 100
) -> list["asyncio.Task[Heard]"]:
    tasks = []
    for start, tenant, urgency in orders:
        tasks.append(asyncio.create_task(scheduler.hear(window(start, length), tenant=tenant, urgency=urgency)))
        await asyncio.sleep(0)
    return tasks


def run(body: Callable[[Model, Scheduler], object], **settings: object) -> Model:
    model = Model(**settings)  # type: ignore[arg-type]  # settings of several types

    async def whole() -> None:
        scheduler = Scheduler(model)
        try:
            await body(model, scheduler)  # type: ignore[misc]  # any coroutine
        finally:
            for _ in range(100):
                model.gate.release()
            scheduler.close()

    asyncio.run(whole())
    return model


def test_windows_that_wait_share_the_next_call() -> None:
    async def body(model: Model, scheduler: Scheduler) -> None:
        tasks = await asked(scheduler, *((n, "a", Urgency.PARTIAL) for n in range(6)))
        model.gate.release(3)
        answers = await asyncio.gather(*tasks)
        assert [-heard.avg_logprob for heard in answers] == [0, 1, 2, 3, 4, 5]

    assert run(body).calls == [[0], [1, 2, 3, 4], [5]]


def test_live_goes_before_files_and_finals_before_partials() -> None:
    async def body(model: Model, scheduler: Scheduler) -> None:
        tasks = await asked(
            scheduler,
            (0, "a", Urgency.BATCH),
            (1, "a", Urgency.BATCH),
            (2, "b", Urgency.PARTIAL),
            (3, "c", Urgency.FINAL),
        )
        model.gate.release(4)
        await asyncio.gather(*tasks)

        done = scheduler.statistics()
        counts = {urgency: done.work[urgency] for urgency in Urgency}
        assert {urgency: count.windows for urgency, count in counts.items()} == {
            Urgency.FINAL: 1,
            Urgency.PARTIAL: 1,
            Urgency.BATCH: 2,
        }
        assert counts[Urgency.BATCH].audio_s == 2 * 100 / RATE
        assert counts[Urgency.PARTIAL].waited_s >= counts[Urgency.FINAL].waited_s > 0
        assert done.calls == len(tasks)

    assert run(body, max_batch=1).calls == [[0], [3], [2], [1]]


def test_a_long_file_does_not_hold_up_a_short_one() -> None:
    async def body(model: Model, scheduler: Scheduler) -> None:
        long = [(n, "long", Urgency.BATCH) for n in range(4)]
        tasks = await asked(scheduler, *long, (10, "short", Urgency.BATCH))
        model.gate.release(5)
        await asyncio.gather(*tasks)

    assert run(body, max_batch=1).calls[1] == [10]


def test_windows_of_other_lengths_do_not_share_a_call() -> None:
    async def body(model: Model, scheduler: Scheduler) -> None:
        tasks = await asked(scheduler, (0, "a", Urgency.FINAL), (1, "a", Urgency.FINAL))
        tasks += await asked(scheduler, (2, "a", Urgency.FINAL), length=200)
        model.gate.release(3)
        await asyncio.gather(*tasks)

    assert run(body).calls == [[0], [1], [2]]


def test_when_its_turn_comes_a_stream_gives_its_newest_window_and_keeps_its_place() -> None:
    async def body(model: Model, scheduler: Scheduler) -> None:
        tasks = await asked(scheduler, (0, "a", Urgency.PARTIAL))
        newer = iter([window(11, final=False), None])
        grown = iter([window(22, 200, final=False), None])
        for start, renewed in ((1, newer), (2, grown), (3, iter([None]))):
            hearing = scheduler.hear(
                window(start, final=False), tenant="a", newer=lambda renewed=renewed: next(renewed)
            )
            tasks.append(asyncio.create_task(hearing))
            await asyncio.sleep(0)
        model.gate.release(3)
        answers = await asyncio.gather(*tasks)
        assert [-heard.avg_logprob for heard in answers] == [0, 11, 22, 3]

    assert run(body).calls == [[0], [11, 3], [22]], "a window that grew out of the call is heard in the next"


def test_a_cancelled_window_is_never_heard() -> None:
    async def body(model: Model, scheduler: Scheduler) -> None:
        first, second, third = await asked(scheduler, *((n, "a", Urgency.FINAL) for n in range(3)))
        second.cancel()
        await asyncio.sleep(0)
        model.gate.release(2)
        await asyncio.gather(first, third)

    assert run(body, max_batch=1).calls == [[0], [2]]


def test_an_error_reaches_those_who_shared_the_call_and_nobody_else() -> None:
    errors = iter([None, ValueError("no"), None])

    async def body(model: Model, scheduler: Scheduler) -> None:
        tasks = await asked(scheduler, *((n, "a", Urgency.FINAL) for n in range(4)))
        model.gate.release(3)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(answer, EngineFailed) for answer in answers] == [False, True, True, False]
        assert scheduler.statistics().failures == 1

    run(body, max_batch=2, fail=lambda: next(errors))


def test_a_call_that_hangs_fails_everyone_until_it_comes_back() -> None:
    async def body(model: Model, scheduler: Scheduler) -> None:
        scheduler._longest_call_s = 0.05
        tasks = await asked(scheduler, (0, "a", Urgency.FINAL), (1, "a", Urgency.FINAL))
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(answer, EngineTimeout) for answer in answers)
        assert not scheduler.healthy
        with pytest.raises(EngineTimeout):
            await scheduler.hear(window(2), tenant="a")
        with pytest.raises(Overloaded):
            scheduler.admit()
        scheduler._longest_call_s = 60.0  # later calls may take longer than the one that hangs
        model.gate.release(2)
        while not scheduler.healthy:  # noqa: ASYNC110  no event tells of it
            await asyncio.sleep(0.01)
        assert (await scheduler.hear(window(3), tenant="a")).avg_logprob == -3

    run(body, max_batch=1)


class Speakers:
    """Live sessions that send a request after each answer, to a model that takes one at a time."""

    def __init__(self, model: Model, scheduler: Scheduler, count: int) -> None:
        self._model, self._scheduler, self._count = model, scheduler, count
        self._tasks: list[asyncio.Task[Heard]] = []

    async def speak(self, calls: int, *, call_s: float) -> None:
        for number in range(calls):
            waiting = [task for task in self._tasks if not task.done()]
            orders = [(number, "a", Urgency.PARTIAL)] * (self._count - len(waiting))
            self._tasks = waiting + await asked(self._scheduler, *orders)
            await asyncio.sleep(0)  # the call has begun
            clock.now += call_s
            self._model.gate.release()
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def fall_silent(self) -> None:
        self._model.gate.release(self._count)
        await asyncio.gather(*self._tasks)


@pytest.mark.usefixtures("by_hand")
def test_a_model_that_is_behind_takes_no_more_sessions_until_nobody_waits() -> None:
    async def body(model: Model, scheduler: Scheduler) -> None:
        speakers = Speakers(model, scheduler, 3)
        await speakers.speak(20, call_s=0.6)  # each waits for the two others
        with pytest.raises(Overloaded):
            scheduler.admit()
        await speakers.fall_silent()
        scheduler.admit()

    run(body, max_batch=1)


@pytest.mark.usefixtures("by_hand")
def test_sessions_that_wait_a_little_leave_room_for_more_but_not_for_many() -> None:
    async def body(model: Model, scheduler: Scheduler) -> None:
        speakers = Speakers(model, scheduler, 3)
        await speakers.speak(20, call_s=0.3)
        scheduler.admit(1.5)
        with pytest.raises(Overloaded):
            scheduler.admit(3.0)
        await speakers.fall_silent()

    run(body, max_batch=1)


@pytest.mark.usefixtures("by_hand")
def test_partials_that_starve_behind_finals_keep_new_sessions_out() -> None:
    async def body(model: Model, scheduler: Scheduler) -> None:
        starving = await asked(scheduler, (0, "a", Urgency.FINAL), (1, "a", Urgency.PARTIAL))
        for number in range(2, 14):  # each final is heard at once
            finals = await asked(scheduler, (number, "b", Urgency.FINAL))
            clock.now += 0.4
            model.gate.release()
            while len(model.calls) < number:  # noqa: ASYNC110  no event tells of a new call
                await asyncio.sleep(0.001)
        with pytest.raises(Overloaded):
            scheduler.admit()
        model.gate.release(2)
        await asyncio.gather(*starving, *finals)

    run(body, max_batch=1)


@pytest.mark.usefixtures("by_hand")
def test_one_good_moment_is_not_yet_room_for_more() -> None:
    async def body(model: Model, scheduler: Scheduler) -> None:
        speakers = Speakers(model, scheduler, 3)
        await speakers.speak(20, call_s=1.0)
        await speakers.speak(5, call_s=0.1)
        with pytest.raises(Overloaded):
            scheduler.admit()
        await speakers.speak(60, call_s=0.1)
        scheduler.admit()
        await speakers.fall_silent()

    run(body, max_batch=1)


@pytest.mark.usefixtures("by_hand")
def test_a_file_that_keeps_the_model_busy_does_not_keep_sessions_out() -> None:
    async def body(model: Model, scheduler: Scheduler) -> None:
        speakers = Speakers(model, scheduler, 3)
        await speakers.speak(20, call_s=1.0)  # the speakers leave, and a file takes what they had
        await speakers.fall_silent()
        tasks = await asked(scheduler, *((number, "a", Urgency.BATCH) for number in range(9)))
        for _ in tasks:
            clock.now += 2.0
            model.gate.release()
            await asyncio.sleep(0.01)
            scheduler.admit()
        await asyncio.gather(*tasks)

    run(body, max_batch=1)


@pytest.mark.usefixtures("by_hand")
def test_the_utilisation_rises_with_work_and_falls_with_rest() -> None:
    async def body(model: Model, scheduler: Scheduler) -> None:
        speakers = Speakers(model, scheduler, 1)
        await speakers.speak(20, call_s=2.0)
        assert scheduler.statistics().utilisation > 0.9
        clock.now += 5.0
        assert scheduler.statistics().utilisation < 0.7

    run(body)


@pytest.mark.usefixtures("by_hand")
def test_a_files_calls_are_short_while_people_speak() -> None:
    async def body(model: Model, scheduler: Scheduler) -> None:
        async def calls(*orders: tuple[int, str, Urgency]) -> list[int]:
            """Return how many windows each call had."""
            before = len(model.calls)
            tasks = await asked(scheduler, *orders)  # the first call has begun, the others wait
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

    run(body)


@pytest.mark.usefixtures("by_hand")
def test_a_file_that_waited_too_long_goes_before_live_windows_once() -> None:
    async def body(model: Model, scheduler: Scheduler) -> None:
        first = (0, "a", Urgency.PARTIAL)
        files = ((1, "f", Urgency.BATCH), (2, "f", Urgency.BATCH))
        tasks = await asked(scheduler, first, *files, (3, "b", Urgency.PARTIAL), (4, "b", Urgency.PARTIAL))
        clock.now += 4.0
        model.gate.release(5)
        await asyncio.gather(*tasks)
        assert model.calls == [[0], [1], [3], [4], [2]]

    run(body, max_batch=1)


def test_more_windows_than_may_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(model: Model, scheduler: Scheduler) -> None:
        tasks = await asked(scheduler, *((number, "a", Urgency.FINAL) for number in range(3)))
        with pytest.raises(Overloaded):
            await scheduler.hear(window(3), tenant="a")
        model.gate.release(3)
        await asyncio.gather(*tasks)

    monkeypatch.setattr("pipeline.recognition.scheduler.MAX_WAITING", 2)
    run(body, max_batch=1)


def test_the_language_is_asked_of_a_few_windows() -> None:
    async def body(_model: Model, scheduler: Scheduler) -> None:
        windows = [np.zeros(10, np.float32)] * 9
        assert await scheduler.detect_language(windows, tenant="a") == ("en", 0.8)

    run(body, max_batch=4)


def test_two_replicas_hear_two_windows_at_the_same_time() -> None:
    async def body(model: Model, scheduler: Scheduler) -> None:
        tasks = await asked(scheduler, *((n, "a", Urgency.BATCH) for n in range(4)))
        await begun(model, 2)
        await asyncio.sleep(0.02)
        assert sorted(model.calls) == [[0], [1]], "no more than there are replicas"
        model.gate.release(4)
        answers = await asyncio.gather(*tasks)
        assert [-heard.avg_logprob for heard in answers] == [0, 1, 2, 3]
        assert scheduler.statistics().calls == len(tasks)

    run(body, max_batch=1, replicas=2)


def test_while_people_speak_files_leave_a_replica_free() -> None:
    async def body(model: Model, scheduler: Scheduler) -> None:
        tasks = await asked(scheduler, *((n, "f", Urgency.BATCH) for n in range(6)))
        await begun(model, 2)
        tasks += await asked(scheduler, (10, "a", Urgency.FINAL), (11, "a", Urgency.FINAL))
        for number, live in ((3, [10]), (4, [11])):
            model.gate.release()
            await begun(model, number)
            assert model.calls[-1] == live, "live windows take the places of the first files that end"
        model.gate.release()
        await asyncio.sleep(0.02)
        for number in range(5, 9):
            model.gate.release()
            await begun(model, number)
            assert under_way(scheduler) == 1, "one call at a time, until people have been silent for long"
        model.gate.release()
        await asyncio.gather(*tasks)

    run(body, max_batch=1, replicas=2)


@pytest.mark.usefixtures("by_hand")
def test_the_whole_machine_is_used_again_some_time_after_the_last_word() -> None:
    async def body(model: Model, scheduler: Scheduler) -> None:
        model.gate.release()
        await asyncio.gather(*await asked(scheduler, (0, "a", Urgency.FINAL)))
        tasks = await asked(scheduler, *((n, "f", Urgency.BATCH) for n in range(1, 6)))
        await begun(model, 2)
        assert under_way(scheduler) == 1
        clock.now += 60.0
        model.gate.release()
        await begun(model, 4)
        assert under_way(scheduler) == 2
        model.gate.release(9)
        await asyncio.gather(*tasks)

    run(body, max_batch=1, replicas=2)


@pytest.mark.usefixtures("by_hand")
def test_a_machine_of_many_cores_hears_several_speakers_at_the_same_time() -> None:
    async def body(model: Model, scheduler: Scheduler) -> None:
        tasks = await asked(scheduler, *((n, "a", Urgency.PARTIAL) for n in range(5)))
        await begun(model, 3)
        assert under_way(scheduler) == 3
        clock.now += 0.4
        assert scheduler.statistics().utilisation == pytest.approx(1 - np.exp(-0.04))
        model.gate.release(5)
        await asyncio.gather(*tasks)

    run(body, max_batch=1, replicas=3, file_replicas_amid_speech=1)


def test_one_call_that_hangs_stops_the_others_from_being_asked() -> None:
    async def body(model: Model, scheduler: Scheduler) -> None:
        scheduler._longest_call_s = 0.05
        tasks = await asked(scheduler, *((n, "a", Urgency.BATCH) for n in range(4)))
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(answer, EngineTimeout) for answer in answers)
        assert not scheduler.healthy
        scheduler._longest_call_s = 60.0
        model.gate.release(1)
        await asyncio.sleep(0.05)
        assert not scheduler.healthy, "the other one still hangs"
        model.gate.release(2)
        while not scheduler.healthy:  # noqa: ASYNC110  no event tells of it
            await asyncio.sleep(0.01)
        assert (await scheduler.hear(window(5), tenant="a")).avg_logprob == -5

    run(body, max_batch=1, replicas=2)


def test_other_work_of_the_model_has_its_turn_too() -> None:
    async def body(model: Model, scheduler: Scheduler) -> None:
        tasks = await asked(scheduler, (0, "a", Urgency.BATCH), (1, "a", Urgency.BATCH))
        turn = asyncio.create_task(scheduler.take_turn(lambda: len(model.calls), tenant="other"))
        model.gate.release(2)
        assert await turn == 1
        await asyncio.gather(*tasks)

    run(body, max_batch=1)


async def begun(model: Model, calls: int) -> None:
    """Wait until so many calls have begun."""
    while len(model.calls) < calls:  # noqa: ASYNC110  no event tells of it
        await asyncio.sleep(0.001)


def under_way(scheduler: Scheduler) -> int:
    return len(scheduler._calling)


def test_closing_fails_whoever_waits() -> None:
    async def body(model: Model, scheduler: Scheduler) -> None:
        first, second = await asked(scheduler, (0, "a", Urgency.FINAL), (1, "a", Urgency.FINAL))
        model.gate.release(9)
        scheduler.close()
        answers = await asyncio.gather(first, second, return_exceptions=True)
        assert isinstance(answers[1], EngineFailed)
        with pytest.raises(EngineFailed):
            await scheduler.hear(window(2), tenant="a")

    run(body, max_batch=1)
