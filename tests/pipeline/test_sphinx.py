"""The embedded recogniser, for real: what it hears, and that its processes come and go as they should."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pipeline.audio import RATE, Samples, position
from pipeline.errors import EngineFailed, EngineTimeout
from pipeline.ingest.packing import Job, PackingOptions
from pipeline.ingest.speech import speech_jobs
from pipeline.ingest.vad import VoiceDetector
from pipeline.recognition.engine import DecodeRequest, Engine, Heard
from pipeline.recognition.engines.sphinx import SphinxEngine
from pipeline.recognition.scoring import spoken, word_errors
from pipeline.words import written
from tests.pipeline.sounds import CLIPS, SPEECH, read
from tests.processes import ROOT, await_true, gone

FLITE = [clip for clip in CLIPS if clip["file"].startswith("flite/")]
SHORT = SPEECH / "flite" / "kal16_3.flac"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")


@pytest.fixture(scope="module")
def engine() -> Iterator[SphinxEngine]:
    with closing(SphinxEngine(processes=2)) as loaded:
        yield loaded


def window(samples: Samples, *, start: int = 0, final: bool = True, utterance: str | None = None) -> DecodeRequest:
    return DecodeRequest(samples=samples, start=start, final=final, utterance=utterance)


def words(heard: Heard) -> list[str]:
    return spoken(written(heard.words))


def from_file(engine: Engine, samples: Samples) -> list[str]:
    """What batch hears in a recording."""
    options = PackingOptions(target=engine.job)
    jobs = [item for item in speech_jobs([samples], VoiceDetector().stream(), options) if isinstance(item, Job)]
    return [word for job in jobs for word in words(engine.hear([window(job.samples, start=job.start)])[0])]


def grown(engine: Engine, samples: Samples, *, name: str, step: int = position(0.5)) -> list[Heard]:
    """The answers to windows that grow by *step*, the last one final."""
    return [
        engine.hear([window(samples[:end], final=end >= len(samples), utterance=name)])[0]
        for end in range(2 * step, len(samples) + step, step)
    ]


def hearers(engine: SphinxEngine) -> list[int]:
    assert engine._cell is not None
    pid = engine._cell._process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_clear_speech_is_heard_almost_without_error(engine: SphinxEngine) -> None:
    said = [spoken(clip["text"]) for clip in FLITE]
    heard = [from_file(engine, read(SPEECH / clip["file"])) for clip in FLITE]
    errors = sum(word_errors(*pair) for pair in zip(said, heard, strict=True))
    assert errors <= 0.15 * sum(map(len, said)), heard


@pytest.mark.parametrize("step", [position(0.5), 5000])
def test_windows_that_grow_end_in_the_answer_to_the_whole(engine: SphinxEngine, step: int) -> None:
    samples = read(SHORT)
    answers = grown(engine, samples, name=f"growing {step}", step=step)
    assert answers[-1] == engine.hear([window(samples)])[0]
    assert all(len(after.words) >= len(before.words) - 2 for before, after in pairwise(answers))


def test_words_are_in_order_inside_their_window_on_the_clock_of_the_stream(engine: SphinxEngine) -> None:
    samples = read(SHORT)
    for answer in [*grown(engine, samples, name="clock"), *engine.hear([window(samples, start=RATE)])]:
        bounds = [position for word in answer.words for position in (word.start, word.end)]
        assert bounds == sorted(bounds)
        assert all(word.start < word.end and 0 < word.probability <= 1 for word in answer.words)
        assert answer.avg_logprob <= 0 <= answer.no_speech_prob <= 1
    assert RATE < answer.words[0].start < answer.words[-1].end <= RATE + len(samples)


def test_an_answer_does_not_depend_on_who_shares_the_call_or_came_before(engine: SphinxEngine) -> None:
    one, other = read(SHORT), read(SPEECH / "flite" / "slt_5.flac")
    alone = engine.hear([window(one)])
    together = engine.hear([window(other), window(one)])
    assert together[1] == alone[0]
    assert together[0].words != alone[0].words


def test_a_forgotten_utterance_is_heard_again_from_its_window() -> None:
    samples = read(SHORT)[: 2 * RATE]
    with closing(SphinxEngine(processes=1)) as engine:
        assert words(engine.hear([window(samples[:RATE], final=False, utterance="first")])[0]) != []
        for number in range(engine._room):
            engine.hear([window(samples[: RATE // 10], final=False, utterance=f"later {number}")])
        assert "first" not in engine._utterances
        assert len(hearers(engine)) <= engine._room + 1  # the one that was forgotten may still be on its way out
        assert engine.hear([window(samples, utterance="first")]) == engine.hear([window(samples)])


def test_a_whisper_and_a_shout_are_heard_alike(engine: SphinxEngine) -> None:
    samples, said = read(SHORT), spoken(next(clip["text"] for clip in FLITE if "kal16" in clip["file"]))
    for gain in (0.03, 3.0):
        heard = engine.hear([window((samples * gain).astype(np.float32))])[0]
        assert word_errors(said, words(heard)) <= 2


def test_speech_after_digital_silence_is_heard(engine: SphinxEngine) -> None:
    samples, said = read(SHORT), spoken(next(clip["text"] for clip in FLITE if "kal16" in clip["file"]))
    muted = np.concatenate([np.zeros(2 * RATE, np.float32), samples])
    answers = grown(engine, muted, name="muted")
    assert word_errors(said, words(answers[-1])) <= 2
    assert answers[-1].words[0].start > 2 * RATE
    assert answers[0].words == ()


@pytest.mark.parametrize("name", ["noise", "silence", "music"])
def test_no_words_are_invented(engine: SphinxEngine, name: str) -> None:
    samples = read(SPEECH / "other" / f"{name}.flac")
    assert from_file(engine, samples) == []
    answer = engine.hear([window(samples)])[0]
    assert answer.words == ()
    assert answer.no_speech_prob == 1.0


def test_the_shortest_window_is_no_trouble(engine: SphinxEngine) -> None:
    assert engine.hear([window(np.zeros(1, np.float32))])[0].words == ()
    one = window(np.zeros(1, np.float32), final=False, utterance="short")
    assert engine.hear([one])[0].words == ()
    assert engine.hear([window(np.zeros(1, np.float32), utterance="short")])[0].words == ()  # nothing new, the last


def test_a_final_ends_its_utterance(engine: SphinxEngine) -> None:
    samples = read(SHORT)[:RATE]
    engine.hear([window(samples, final=False, utterance="ending")])
    assert "ending" in engine._utterances
    engine.hear([window(samples, utterance="ending")])
    assert "ending" not in engine._utterances


def test_a_killed_hearer_fails_its_call_and_the_next_one_works(engine: SphinxEngine) -> None:
    samples = read(SHORT)[: 2 * RATE]
    engine.hear([window(samples[:RATE], final=False, utterance="killed")])
    await_true(lambda: len(hearers(engine)) == 1)  # those of other tests are gone
    os.kill(hearers(engine)[0], signal.SIGKILL)
    with pytest.raises(EngineFailed):
        engine.hear([window(samples, utterance="killed")])
    assert engine.hear([window(samples, utterance="killed")]) == engine.hear([window(samples)])


def test_a_killed_cell_is_replaced() -> None:
    samples = read(SHORT)[: 2 * RATE]
    with closing(SphinxEngine(processes=1)) as engine:
        before = engine.hear([window(samples)])
        assert engine._cell is not None
        first = engine._cell._process
        first.kill()
        first.wait()
        assert engine.hear([window(samples)]) == before
        assert engine._cell._process.pid != first.pid


def test_a_hearer_that_hangs_is_ended_and_the_next_call_works() -> None:
    samples = read(SHORT)[:RATE]
    with closing(SphinxEngine(processes=1)) as engine:
        hang = window(samples[: RATE // 10], final=False, utterance="hanging")
        engine.hear([hang])
        await_true(lambda: len(hearers(engine)) == 1)  # the one that was there before is gone
        (pid,) = hearers(engine)
        os.kill(pid, signal.SIGSTOP)
        engine._patience_s = 0.0
        with pytest.raises(EngineTimeout):
            engine.hear([hang])
        await_true(lambda: gone(pid))
        engine._patience_s = 60.0
        assert engine.hear([hang])[0].words == ()


PARENT = """
import signal
import numpy as np
from pipeline.recognition.engine import DecodeRequest
from pipeline.recognition.engines.sphinx import SphinxEngine

engine = SphinxEngine(processes=1)
engine.hear([DecodeRequest(samples=np.zeros(1600, np.float32), start=0, final=False, utterance="open")])
print(engine._cell._process.pid, flush=True)
signal.pause()
"""


def test_nothing_stays_behind_a_parent_that_was_killed() -> None:
    parent = subprocess.Popen((sys.executable, "-c", PARENT), stdout=subprocess.PIPE, cwd=ROOT, text=True)
    with parent:
        assert parent.stdout is not None
        cell = int(parent.stdout.readline())
        children = Path(f"/proc/{cell}/task/{cell}/children").read_text().split()
        assert children
        parent.kill()
    await_true(lambda: all(gone(int(pid)) for pid in [cell, *children]))


def test_closing_ends_every_process_and_may_be_repeated() -> None:
    engine = SphinxEngine(processes=1)
    engine.hear([window(np.zeros(RATE, np.float32), final=False, utterance="open")])
    children = hearers(engine)
    assert children
    engine.close()
    engine.close()
    await_true(lambda: all(gone(pid) for pid in children))
