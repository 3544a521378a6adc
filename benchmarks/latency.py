"""How soon live words are final, and how many sessions one core supports: python -m benchmarks.latency --help

    .venv/bin/python -m benchmarks.latency                               # people, in every condition
    .venv/bin/python -m benchmarks.latency --conditions clean --length 1800 --result latency-half-hour
    .venv/bin/python -m benchmarks.latency --clock real --conditions clean --result latency-real
    .venv/bin/python -m benchmarks.latency --sessions search --result latency-search
    .venv/bin/python -m benchmarks.latency --model tests/speech/tiny-whisper --speech made

Recordings of people are varied by benchmarks/conditions.py: short utterances and cut clips get a session each, every
other condition one joined track. wer_gap is the word error rate of live words minus that of the same engine on the
whole track. Made clips are streamed one after the other.

The sender sends 32 ms of audio at the moment when they would have been spoken. Times are those of the reader of the
events. --clock simulated counts only the model's CPU time, so other work on the machine does not disturb it. --clock
real measures everything, and its result is invalid if the sender itself was late.
"""

import argparse
import asyncio
import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.choices import Choices, add_choices, choices_of
from benchmarks.conditions import CONDITIONS, PIECES, string_in_condition
from benchmarks.live_scores import Scores, Seen, Shown, Truth
from benchmarks.measure import cpu_s, rss_mb, spread, write
from benchmarks.scoring import matches, spoken_words
from benchmarks.tracks import WARM_UP_S, Track, recordings, wordless
from benchmarks.virtual_time import VirtualTimeLoop
from pipeline.audio import RATE, WINDOW, Samples
from pipeline.batch import packing_options
from pipeline.events import Partial, SegmentClosed, WordsCommitted
from pipeline.ingest.packing import DecodeJob
from pipeline.ingest.speech import speech_jobs
from pipeline.ingest.vad import VoiceDetector
from pipeline.recognition.engine import DecodeRequest, Engine
from pipeline.recognition.engines.load import EngineSettings, load
from pipeline.recognition.latency import BALANCED, with_latency
from pipeline.recognition.scheduler import Scheduler
from pipeline.recognition.stream import StreamCore
from pipeline.recognition.stream_options import StreamOptions
from pipeline.session import Session
from pipeline.timed_events import TimedEvent
from pipeline.words import Word, join_words

FRAME_S = WINDOW / RATE
TIMELESS = partial(VirtualTimeLoop, lambda: 0.0)
"""A clock on which no computation takes time: delays on it come from the rules for final words alone."""

LATEST_SENDER_S = 0.05
MIN_COVERAGE = 0.95
LENGTH_S = 120.0  # of a joined track
LIVE_CONDITIONS = tuple(name for name in CONDITIONS if name != "joined")  # tracks are joined in any of them
NOTHING_TIMES = 3  # each sound without speech is played so often


Clock: TypeAlias = Callable[[], asyncio.AbstractEventLoop]


@dataclass
class Run:
    """The results of one run of one or more sessions."""

    scores: Scores = field(default_factory=Scores)
    sender_late_s: list[float] = field(default_factory=list)
    loop_late_s: list[float] = field(default_factory=list)
    audio_s: float = 0.0
    calls: int = 0
    retractions: int = 0
    rejected: int = 0
    forced: int = 0
    round_s: list[float] = field(default_factory=list)


def heard_clips(folder: Path, bench: "Bench", longest_s: float = math.inf) -> list[Track]:
    """Return the clips of a folder that have words, with the engine's own result for each whole recording.

    If a manifest has the text alone, the word times come from that result.
    """
    tracks = []
    for row, samples in recordings(folder, longest_s):
        if row["language"] in bench.languages:
            offline = bench.offline(samples)
            truth = tuple(Truth(*word) for word in row["words"] or ()) or place_words(row["text"], offline)
            if truth:
                tracks.append(Track(row["file"], row["language"], samples, truth, join_words(offline)))
    return tracks


def place_words(text: str, heard: Sequence[Word]) -> tuple[Truth, ...]:
    """Return the words of *text* with the times of the same words in *heard*; the others lie evenly between them.

    Returns () if less than half of them were recognised: the engine does not know these words or this voice.
    """
    said = spoken_words(text)
    pairs = matches(said, [" ".join(spoken_words(word.text)) for word in heard])
    if 2 * len(pairs) < len(said):
        return ()
    rows = [row for row, _ in pairs]
    starts = np.interp(range(len(said)), rows, [heard[column].start / RATE for _, column in pairs])
    ends = np.interp(range(len(said)), rows, [heard[column].end / RATE for _, column in pairs])
    return tuple(Truth(word, float(start), float(end)) for word, start, end in zip(said, starts, ends, strict=True))


async def stream(
    track: Track, session: Session, run: Run, *, delay_s: float, since: float, heard: list[TimedEvent] | None = None
) -> None:
    """Send one track at the speed of speech, read the events into *heard*, and score them."""
    loop = asyncio.get_running_loop()
    began = loop.time() + delay_s
    seen: list[Seen] = []

    async def send() -> None:
        for number in range(-(-len(track.samples) // WINDOW)):
            frame = track.samples[number * WINDOW : (number + 1) * WINDOW]
            due = began + (number * WINDOW + len(frame)) / RATE
            await asyncio.sleep(due - loop.time())
            run.sender_late_s.append(loop.time() - due)
            await session.feed(frame)
        session.end()

    async def read() -> None:
        async for happened in session.events():
            if heard is not None:
                heard.append(happened)
            seen.extend(_updates_of(happened, loop.time() - began))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(session.run())
        tasks.create_task(read())
        tasks.create_task(send())
    _count(run, session, track)
    run.scores.add(track.truth, seen, offline=track.offline, since=since, language=track.language, edges=track.edges)


def _updates_of(happened: TimedEvent, at: float) -> tuple[Seen, ...]:
    match happened.event:
        case WordsCommitted(words):
            return (Seen(at, final=tuple(Shown(word.text, word.start / RATE, word.end / RATE) for word in words)),)
        case Partial(words):
            return (Seen(at, partial=tuple(word.text for word in words)),)
        case SegmentClosed():
            return (Seen(at, partial=(), closed=True),)
        case _:
            return ()


def _count(run: Run, session: Session, track: Track) -> None:
    numbers = session.statistics()
    run.audio_s += len(track.samples) / RATE
    run.calls += numbers.counts.partials + numbers.counts.finals
    run.rejected += numbers.counts.rejected
    run.forced += numbers.counts.forced
    run.retractions += numbers.retractions
    run.round_s.append(numbers.round_s)


async def _watch_loop(run: Run) -> None:
    """Measure how late the event loop wakes a task."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + 0.005
        await asyncio.sleep(0.005)
        run.loop_late_s.append(loop.time() - due)


class Bench:
    """One loaded engine to stream to."""

    def __init__(
        self,
        engine: Engine,
        voice: VoiceDetector,
        *,
        clock: Clock | None = None,
        step_s: float | None = None,
        latency: str = BALANCED,
        patient: bool = True,
    ) -> None:
        """*clock* makes the event loop of virtual time, or is None for real time.

        *patient* sessions name no endpointing_ms, see with_latency().
        """
        self._engine = engine
        self._voice = voice
        self._clock = clock
        self._options = with_latency(StreamOptions(), latency, patient=patient)
        if step_s is not None:
            self._options = replace(self._options, step=round(step_s * RATE))

    @property
    def real(self) -> bool:
        return self._clock is None

    @property
    def languages(self) -> frozenset[str]:
        return self._engine.languages

    def offline(self, samples: Samples, language: str | None = None, hint: str = "") -> tuple[Word, ...]:
        """Return what the engine recognises in a whole recording, packed as files are."""
        words: tuple[Word, ...] = ()
        for item in speech_jobs([samples], self._voice.stream(), packing_options(self._engine)):
            if isinstance(item, DecodeJob):
                request = DecodeRequest(
                    samples=item.samples, start=item.start, language=language, hint=hint, voiced=item.voiced
                )
                [heard] = self._engine.recognise([request])
                language = language or heard.language
                words += heard.words
        return words

    def one_by_one(self, tracks: Iterable[Track], sessions: list[list[TimedEvent]] | None = None) -> dict[str, Any]:
        """Stream each track in its own session, one after the other, and append what happened in each to *sessions*."""

        async def main(run: Run, scheduler: Scheduler) -> None:
            for number, track in enumerate(tracks):
                heard: list[TimedEvent] = []
                await stream(track, self._session(scheduler, f"s{number}"), run, delay_s=0.0, since=0.0, heard=heard)
                if sessions is not None:
                    sessions.append(heard)

        return self._run(main)

    def final_words(self, tracks: Sequence[Track]) -> list[tuple[Word, ...]]:
        """Stream each track in its own session, one after the other, and return the final words of each."""
        sessions: list[list[TimedEvent]] = []
        self.one_by_one(tracks, sessions)
        return [final_words(heard) for heard in sessions]

    def together(self, tracks: Sequence[Track], *, seed: int = 1) -> dict[str, Any]:
        """Stream all tracks at once, starting at random moments of the first second."""
        starts = random.Random(seed)

        async def main(run: Run, scheduler: Scheduler) -> None:
            async with asyncio.TaskGroup() as tasks:
                for number, track in enumerate(tracks):
                    session = self._session(scheduler, f"s{number}")
                    tasks.create_task(stream(track, session, run, delay_s=starts.random(), since=WARM_UP_S))

        return {"sessions": len(tracks), **self._run(main)}

    def _session(self, scheduler: Scheduler, name: str) -> Session:
        return Session(
            StreamCore(self._options),
            vad=self._voice.stream(),
            recogniser=scheduler,
            tenant=name,
        )

    def _run(self, main: Callable[[Run, Scheduler], Any]) -> dict[str, Any]:
        run = Run()

        async def run_watched() -> float:
            scheduler = Scheduler(self._engine)
            began_s = asyncio.get_running_loop().time()
            watching = asyncio.create_task(_watch_loop(run)) if self.real else None
            await main(run, scheduler)
            if watching is not None:
                watching.cancel()
            took_s = asyncio.get_running_loop().time() - began_s
            scheduler.close()
            return took_s

        cpu_before = cpu_s()
        with asyncio.Runner(loop_factory=self._clock) as runner:
            took_s = runner.run(run_watched())
        cpu = cpu_s() - cpu_before
        late = spread(run.sender_late_s)
        return {
            **run.scores.table(),
            "retractions": run.retractions,
            "rejected": run.rejected,
            "forced": run.forced,
            "audio_s": round(run.audio_s, 1),
            "took_s": round(took_s, 1),
            "calls_per_audio_s": round(run.calls / run.audio_s, 3),
            "cpu_per_audio_s": round(cpu / run.audio_s, 4),
            "cores_used": round(cpu / took_s, 3),
            "rss_mb": round(rss_mb()),
            "round_s": round(statistics.mean(run.round_s), 3),
            **({"loop_late_s": spread(run.loop_late_s, 4), "sender_late_s": late} if self.real else {}),
            "void": late["p99"] > LATEST_SENDER_S,
        }


def final_words(heard: Iterable[TimedEvent]) -> tuple[Word, ...]:
    """Return the final words of a session."""
    events = [happened.event for happened in heard]
    return tuple(word for event in events if isinstance(event, WordsCommitted) for word in event.words)


def in_condition(name: str, clips: Sequence[Track], seed: int, length_s: float) -> list[Track]:
    """Return the tracks for one condition: each piece alone, or one joined track."""
    if name in PIECES:
        return CONDITIONS[name](clips, seed)
    return [string_in_condition(name, clips, seed, length_s)]


def by_condition(
    bench: Bench, names: Sequence[str], clips: Sequence[Track], seed: int, length_s: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the scores of live words of people, for each condition."""
    for name in names:
        tracks = [
            replace(track, offline=join_words(bench.offline(track.samples, track.language)))
            for track in in_condition(name, clips, seed, length_s)
        ]
        yield name, bench.one_by_one(tracks)


def out_of_nothing(bench: Bench) -> dict[str, Any]:
    """Return how many words are recognised in sounds without speech."""
    tracks = [replace(track, samples=np.tile(track.samples, NOTHING_TIMES)) for track in wordless()]
    scores = bench.one_by_one(tracks)
    return {
        "audio_s": scores["audio_s"],
        "words_out_of_nothing": scores["errors"],
        "calls_per_audio_s": scores["calls_per_audio_s"],
    }


def most_sessions(
    bench: Bench, tracks: Callable[[int], Sequence[Track]], limit_s: float, alone: float
) -> dict[str, Any]:
    """Return the largest number of sessions whose 95th percentile of commit latency is at most *limit_s*.

    A simulated clock counts the model alone, so the CPU time of everything must also fit one core.
    """
    runs: dict[int, dict[str, Any]] = {}

    def holds(count: int) -> bool:
        if count not in runs:
            runs[count] = bench.together(tracks(count))
            _say(f"{count} sessions", runs[count])
        result = runs[count]
        p95 = result["commit_s"].get("p95", float("inf"))
        fits = bench.real or result["cores_used"] <= 1.0
        return bool(p95 <= limit_s and result["coverage"] >= MIN_COVERAGE * alone and fits and not result["void"])

    low, high = 0, 4
    while holds(high):
        low, high = high, high * 2
    while high - low > max(1, low // 10):
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return {"limit_s": limit_s, "sessions": low, "runs": [runs[count] for count in sorted(runs)]}


def _say(what: str, result: dict[str, Any]) -> None:
    shown = (
        "words", "wer", "wer_gap", "said_twice", "lost_first_s", "lost_last_s", "commit_s", "first_seen_s", "erasure",
        "cores_used",
    )  # fmt: skip
    print(f"{what:>18}  " + "  ".join(f"{key} {result[key]}" for key in shown if key in result), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_choices(parser)
    parser.add_argument("--conditions", nargs="+", choices=LIVE_CONDITIONS, default=LIVE_CONDITIONS, metavar="NAME")
    parser.add_argument("--length", type=float, default=LENGTH_S, help="seconds of a joined track")
    parser.add_argument("--seed", type=int, default=1, help="of all that is random in a condition")
    parser.add_argument("--clock", default="simulated", choices=("simulated", "real"))
    parser.add_argument("--threads", type=int, default=1, help="of one model call")
    parser.add_argument("--step", type=float, help="seconds between partials")
    parser.add_argument(
        "--sessions", default="1", help="1: one after the other. N: so many at once. search: how many fit"
    )
    parser.add_argument("--limit", type=float, default=2.5, help="of the 95th percentile of commit latency, for search")
    parser.add_argument("--result", help="name of the result file")
    args = parser.parse_args()
    choices = choices_of(args)

    engine = load(EngineSettings(engine="whisper", model=choices.model, device="cpu", threads=args.threads))
    voice = VoiceDetector()
    simulated = partial(VirtualTimeLoop, time.process_time)
    bench = Bench(engine, voice, clock=simulated if args.clock == "simulated" else None, step_s=args.step)
    result: dict[str, Any] = {**choices.about(), "clock": args.clock, "threads": args.threads}
    if args.sessions == "search":
        alone = bench.together(choices.tracks(1))
        _say("alone", alone)
        result["search"] = most_sessions(bench, choices.tracks, args.limit, alone["coverage"])
    elif args.sessions != "1":
        result["together"] = bench.together(choices.tracks(int(args.sessions)))
        _say(f"{args.sessions} sessions", result["together"])
    else:
        result |= one_session(bench, Bench(engine, voice, clock=TIMELESS, step_s=args.step), choices, args)
    engine.close()
    if args.result:
        print(write(choices.result(args.result), result))


def one_session(bench: Bench, unaware: Bench, choices: Choices, args: argparse.Namespace) -> dict[str, Any]:
    """Return the scores of one session: people in each condition, or each made clip; and sounds without speech."""
    result: dict[str, Any] = {}
    if choices.speech == "people":
        result["length_s"], result["seed"] = args.length, args.seed
        rows = result["conditions"] = {}
        for name, row in by_condition(bench, args.conditions, choices.clips(), args.seed, args.length):
            rows[name] = row
            _say(name, row)
    else:
        tracks = [track for folder in choices.folders for track in heard_clips(folder, bench)]
        laal_s = unaware.one_by_one(tracks)["laal_s"]
        result["one"] = {**bench.one_by_one(tracks), "laal_unaware_s": laal_s}
        _say("clip after clip", result["one"])
    result["nothing"] = out_of_nothing(bench)
    print(result["nothing"])
    return result


if __name__ == "__main__":
    main()
