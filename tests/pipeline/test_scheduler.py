"""Tests of scheduler.py: which windows are recognised next and together, and failing and hanging models."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from pipeline.audio import RATE
from pipeline.errors import EngineFailed, EngineTimeout
from pipeline.recognition.scheduler import CallOrder, Overloaded, Scheduler, Urgency
from tests.pipeline.scheduling import Model, request_windows, scheduling, wait_for_calls, window
from tests.waiting import eventually


def admits(scheduler: Scheduler) -> bool:
    try:
        scheduler.admit()
    except Overloaded:
        return False
    return True


async def test_windows_that_wait_share_the_next_call():
    async with scheduling() as (model, scheduler):
        tasks = await request_windows(scheduler, *((n, "a", Urgency.PARTIAL) for n in range(6)))
        model.gate.release(3)
        answers = await asyncio.gather(*tasks)
        assert [-heard.avg_logprob for heard in answers] == [0, 1, 2, 3, 4, 5]
    assert model.calls == [[0], [1, 2, 3, 4], [5]]


async def test_live_goes_before_files_and_finals_before_partials():
    async with scheduling(max_batch=1) as (model, scheduler):
        tasks = await request_windows(
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
            Urgency.TRANSLATION: 0,
            Urgency.BATCH: 2,
        }
        assert counts[Urgency.BATCH].audio_s == 2 * 100 / RATE
        assert counts[Urgency.PARTIAL].waited_s >= counts[Urgency.FINAL].waited_s > 0
        assert done.calls == len(tasks)
    assert model.calls == [[0], [3], [2], [1]]


async def test_a_long_file_does_not_hold_up_a_short_one():
    async with scheduling(max_batch=1) as (model, scheduler):
        long = [(n, "long", Urgency.BATCH) for n in range(4)]
        tasks = await request_windows(scheduler, *long, (10, "short", Urgency.BATCH))
        model.gate.release(5)
        await asyncio.gather(*tasks)
    assert model.calls[1] == [10]


async def test_windows_of_other_lengths_do_not_share_a_call():
    async with scheduling() as (model, scheduler):
        tasks = await request_windows(scheduler, (0, "a", Urgency.FINAL), (1, "a", Urgency.FINAL))
        tasks += await request_windows(scheduler, (2, "a", Urgency.FINAL), length=200)
        model.gate.release(3)
        await asyncio.gather(*tasks)
    assert model.calls == [[0], [1], [2]]


async def test_when_its_turn_comes_a_stream_gives_its_newest_window_and_keeps_its_place():
    async with scheduling() as (model, scheduler):
        tasks = await request_windows(scheduler, (0, "a", Urgency.PARTIAL))
        newer = iter([window(11, final=False), None])
        grown = iter([window(22, 200, final=False), None])
        for start, renewed in ((1, newer), (2, grown), (3, iter([None]))):
            hearing = scheduler.recognise(
                window(start, final=False), tenant="a", newer=lambda renewed=renewed: next(renewed)
            )
            tasks.append(asyncio.create_task(hearing))
            await asyncio.sleep(0)
        model.gate.release(3)
        answers = await asyncio.gather(*tasks)
        assert [-heard.avg_logprob for heard in answers] == [0, 11, 22, 3]
    assert model.calls == [[0], [11, 3], [22]], "a window that grew out of the call is heard in the next"


async def test_a_stream_that_fails_when_its_turn_comes_hears_of_it_and_nobody_else_does():
    def raise_error() -> None:
        raise ZeroDivisionError

    async with scheduling() as (model, scheduler):
        tasks = await request_windows(scheduler, (0, "a", Urgency.PARTIAL))
        broken = asyncio.create_task(scheduler.recognise(window(1, final=False), tenant="b", newer=raise_error))
        await asyncio.sleep(0)
        tasks += await request_windows(scheduler, (2, "c", Urgency.PARTIAL))
        model.gate.release(2)
        answers = await asyncio.gather(*tasks)
        assert [-heard.avg_logprob for heard in answers] == [0, 2]
        with pytest.raises(ZeroDivisionError):
            await broken


async def test_a_cancelled_window_is_never_heard():
    async with scheduling(max_batch=1) as (model, scheduler):
        first, second, third = await request_windows(scheduler, *((n, "a", Urgency.FINAL) for n in range(3)))
        second.cancel()
        await asyncio.sleep(0)
        model.gate.release(2)
        await asyncio.gather(first, third)
    assert model.calls == [[0], [2]]


async def test_an_error_reaches_those_who_shared_the_call_and_nobody_else():
    errors = iter([None, ValueError("no"), None])
    async with scheduling(max_batch=2, fail=lambda: next(errors)) as (model, scheduler):
        tasks = await request_windows(scheduler, *((n, "a", Urgency.FINAL) for n in range(4)))
        model.gate.release(3)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(answer, EngineFailed) for answer in answers] == [False, True, True, False]
        assert scheduler.statistics().failures == 1


async def test_more_windows_than_may_wait_are_refused(monkeypatch):
    monkeypatch.setattr("pipeline.recognition.scheduler.MAX_WAITING", 2)
    async with scheduling(max_batch=1) as (model, scheduler):
        tasks = await request_windows(scheduler, *((number, "a", Urgency.FINAL) for number in range(3)))
        with pytest.raises(Overloaded):
            await scheduler.recognise(window(3), tenant="a")
        model.gate.release(3)
        await asyncio.gather(*tasks)


async def test_the_language_is_detected_in_its_turn():
    async with scheduling(max_batch=4) as (_, scheduler):
        found = await scheduler.detect_language(np.zeros(8, np.float32), tenant="a", urgency=Urgency.BATCH)
        assert found == {"en": 0.8}


async def test_two_replicas_hear_two_windows_at_the_same_time():
    async with scheduling(max_batch=1, replicas=2) as (model, scheduler):
        tasks = await request_windows(scheduler, *((n, "a", Urgency.BATCH) for n in range(4)))
        await wait_for_calls(model, 2)
        await asyncio.sleep(0.02)
        assert sorted(model.calls) == [[0], [1]], "no more than there are replicas"
        model.gate.release(4)
        answers = await asyncio.gather(*tasks)
        assert [-heard.avg_logprob for heard in answers] == [0, 1, 2, 3]
        assert scheduler.statistics().calls == len(tasks)


async def test_a_call_that_hangs_fails_everyone_until_it_comes_back():
    async with scheduling(max_batch=1, replicas=2) as (model, scheduler):
        scheduler.longest_call_s = 0.05
        tasks = await request_windows(scheduler, *((n, "a", Urgency.BATCH) for n in range(4)))
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(answer, EngineTimeout) for answer in answers)
        assert not admits(scheduler)
        with pytest.raises(EngineTimeout):
            await scheduler.recognise(window(4), tenant="a")
        scheduler.longest_call_s = 60.0  # later calls may take longer than the one that hangs
        model.gate.release(1)
        await asyncio.sleep(0.05)
        assert not admits(scheduler), "the other one still hangs"
        model.gate.release(2)
        await eventually(lambda: admits(scheduler))
        assert (await scheduler.recognise(window(5), tenant="a")).avg_logprob == -5


async def test_closing_fails_whoever_waits():
    async with scheduling(max_batch=1) as (model, scheduler):
        first, second = await request_windows(scheduler, (0, "a", Urgency.FINAL), (1, "a", Urgency.FINAL))
        model.gate.release(9)
        scheduler.close()
        answers = await asyncio.gather(first, second, return_exceptions=True)
        assert isinstance(answers[1], EngineFailed)
        with pytest.raises(EngineFailed):
            await scheduler.recognise(window(2), tenant="a")


@asynccontextmanager
async def two_models(**settings: Any) -> AsyncIterator[tuple[Model, Scheduler, Model, Scheduler]]:
    """Yield two models that share the machine, with their schedulers; *settings* are those of the second one."""
    order, models = CallOrder(), (Model(max_batch=1), Model(max_batch=1, **settings))
    one, other = (Scheduler(model, order) for model in models)
    try:
        yield models[0], one, models[1], other
    finally:
        for model in models:
            model.gate.release(100)
        one.close()
        other.close()


async def test_live_windows_of_one_model_go_before_files_of_another():
    async with two_models() as (model, one, other_model, other):
        files = await request_windows(one, *((n, "a", Urgency.BATCH) for n in range(3)))
        live = await request_windows(other, (9, "b", Urgency.PARTIAL))
        await wait_for_calls(model, 1)
        assert other_model.calls == [], "one call takes the whole machine"
        model.gate.release(1)
        await wait_for_calls(other_model, 1)
        assert model.calls == [[0]]
        other_model.gate.release(1)
        model.gate.release(2)
        await asyncio.gather(*files, *live)
        assert model.calls == [[0], [1], [2]]


async def test_calls_of_two_models_share_the_machine_by_their_replicas():
    async with two_models(replicas=2) as (model, one, other_model, other):
        halves = await request_windows(other, *((n, "a", Urgency.FINAL) for n in range(2)))
        whole = await request_windows(one, (5, "b", Urgency.FINAL))
        await wait_for_calls(other_model, 2)
        other_model.gate.release(1)
        await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
        assert model.calls == [], "half of the machine is still in use"
        other_model.gate.release(1)
        model.gate.release(1)
        await asyncio.gather(*halves, *whole)


async def test_a_model_that_hangs_does_not_stop_another():
    async with two_models() as (_, one, other_model, other):
        one.longest_call_s = 0.05
        hanging = await request_windows(one, (0, "a", Urgency.FINAL))
        waiting = await request_windows(other, (1, "b", Urgency.FINAL))
        other_model.gate.release(1)
        assert (await waiting[0]).avg_logprob == -1
        assert isinstance((await asyncio.gather(*hanging, return_exceptions=True))[0], EngineTimeout)
