"""How soon live words are final, and how often they are wrong, on a clock that counts the model's CPU time alone.

    .venv/bin/python -m benchmarks.latency                                       # people, in every condition
    .venv/bin/python -m benchmarks.latency --conditions clean --length 1800      # half an hour of them
    .venv/bin/python -m benchmarks.latency --latency low balanced accurate --result latency-choices

Recordings of people are varied by benchmarks/conditions.py: short utterances and cut clips get a session each, every
other condition one joined track. The sender sends 32 ms of audio at the moment when they would have been spoken; times
are those of the reader of the events. Other work on the machine does not disturb the clock. wer_gap is the word error
rate of live words minus that of the same engine on the whole recording.
"""

import argparse
import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.choices import add_choices, choices_of
from benchmarks.conditions import CONDITIONS, short, string_together
from benchmarks.live_scores import Scores, Seen, Shown, plain
from benchmarks.measure import cpu_s, write
from benchmarks.scoring import matches
from benchmarks.tracks import Track, Truth, recordings
from benchmarks.virtual_time import VirtualTimeLoop
from pipeline.audio import RATE, WINDOW, Samples
from pipeline.batch import packing_options
from pipeline.events import Partial, SegmentClosed, TimedEvent, WordsCommitted
from pipeline.ingest.speech import DecodeJob, SpeechPacker
from pipeline.ingest.vad import Vad
from pipeline.live_stream import LiveStream
from pipeline.recognition.engine import DecodeRequest, Engine
from pipeline.recognition.engines.load import load
from pipeline.recognition.model_set import EngineSettings
from pipeline.recognition.scheduler import Scheduler
from pipeline.recognition.stream import StreamCore
from pipeline.recognition.stream_options import BALANCED, LATENCIES, StreamOptions, with_latency
from pipeline.words import Word, join_words

LENGTH_S = 120.0  # of a joined track


def cpu_clock() -> VirtualTimeLoop:
    """Return an event loop on which only the CPU time of this process passes."""
    return VirtualTimeLoop(time.process_time)


@dataclass
class Run:
    """The results of one or more sessions, one after the other."""

    scores: Scores = field(default_factory=Scores)
    audio_s: float = 0.0
    calls: int = 0
    retractions: int = 0


class Bench:
    """One loaded engine to stream to."""

    def __init__(
        self,
        engine: Engine,
        voice: Vad,
        *,
        clock: Callable[[], asyncio.AbstractEventLoop] = cpu_clock,
        latency: str = BALANCED,
    ) -> None:
        """*clock*: makes the event loop that each run has for itself.

        *latency*: one of LATENCIES, as a session's order names it.
        """
        self._engine = engine
        self._voice = voice
        self._clock = clock
        self._options = with_latency(StreamOptions(), latency, patient=True)

    @property
    def languages(self) -> frozenset[str]:
        return self._engine.languages

    def offline(self, samples: Samples, language: str | None = None) -> tuple[Word, ...]:
        """Return what the engine recognises in a whole recording, packed as files are."""
        words: tuple[Word, ...] = ()
        packer = SpeechPacker(self._voice.stream(), packing_options(self._engine.longest_job))
        for item in (*packer.pack(samples), *packer.flush()):
            if isinstance(item, DecodeJob):
                request = DecodeRequest(samples=item.samples, start=item.start, language=language, voiced=item.voiced)
                [heard] = self._engine.recognise([request])
                language = language or heard.language
                words += heard.words
        return words

    def one_by_one(self, tracks: Iterable[Track], sessions: list[list[TimedEvent]] | None = None) -> dict[str, Any]:
        """Stream each track in its own session, one after the other, and append what happened in each to *sessions*."""
        run = Run()
        cpu_before = cpu_s()
        with asyncio.Runner(loop_factory=self._clock) as runner:
            runner.run(self._stream_all(tracks, run, [] if sessions is None else sessions))
        cpu = cpu_s() - cpu_before
        return {
            **run.scores.table(),
            "retractions": run.retractions,
            "audio_s": round(run.audio_s, 1),
            "calls_per_audio_s": round(run.calls / run.audio_s, 3),
            "cpu_per_audio_s": round(cpu / run.audio_s, 4),
        }

    async def _stream_all(self, tracks: Iterable[Track], run: Run, sessions: list[list[TimedEvent]]) -> None:
        scheduler = Scheduler(self._engine)
        for number, track in enumerate(tracks):
            vad, tenant = self._voice.stream(), f"s{number}"
            session = LiveStream(StreamCore(self._options), vad=vad, recogniser=scheduler, tenant=tenant)
            sessions.append(await _stream(track, session, run))
        scheduler.close()


async def _stream(track: Track, session: LiveStream, run: Run) -> list[TimedEvent]:
    """Send one track at the speed of speech, score the events for *run*, and return them."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    heard: list[TimedEvent] = []
    seen: list[Seen] = []

    async def send() -> None:
        for at in range(0, len(track.samples), WINDOW):
            frame = track.samples[at : at + WINDOW]
            await asyncio.sleep(began + (at + len(frame)) / RATE - loop.time())
            await session.feed(frame)
        session.finish()

    async def read() -> None:
        async for happened in session.events():
            heard.append(happened)
            seen.extend(_seen(happened, loop.time() - began))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(session.run())
        tasks.create_task(read())
        tasks.create_task(send())
    numbers = session.statistics()
    run.audio_s += track.seconds
    run.calls += numbers.counts.partials + numbers.counts.finals
    run.retractions += numbers.retractions
    run.scores.add(track.truth, seen, offline=track.offline, language=track.language)
    return heard


def _seen(happened: TimedEvent, at: float) -> Iterator[Seen]:
    match happened.event:
        case WordsCommitted(words):
            yield Seen(at, final=tuple(Shown(word.text, word.start / RATE, word.end / RATE) for word in words))
        case Partial(words):
            yield Seen(at, partial=tuple(word.text for word in words))
        case SegmentClosed():
            yield Seen(at, partial=())


def final_words(heard: Iterable[TimedEvent]) -> tuple[Word, ...]:
    """Return the final words of a session."""
    events = [happened.event for happened in heard]
    return tuple(word for event in events if isinstance(event, WordsCommitted) for word in event.words)


def heard_clips(folder: Path, bench: Bench, longest_s: float = math.inf) -> list[Track]:
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
    said = text.split()
    pairs = matches(plain([Shown(word) for word in said]), plain([Shown(word.text) for word in heard]))
    if 2 * len(pairs) < len(said) or not pairs:
        return ()
    rows = [row for row, _ in pairs]
    starts = np.interp(range(len(said)), rows, [heard[column].start / RATE for _, column in pairs])
    ends = np.interp(range(len(said)), rows, [heard[column].end / RATE for _, column in pairs])
    return tuple(Truth(word, float(start), float(end)) for word, start, end in zip(said, starts, ends, strict=True))


def in_condition(name: str, clips: Sequence[Track], seed: int, length_s: float) -> list[Track]:
    """Return the tracks for one condition: each piece alone, or one joined track."""
    return CONDITIONS[name](clips if CONDITIONS[name] is short else [string_together(clips, seed, length_s)], seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_choices(parser)
    parser.add_argument("--conditions", nargs="+", choices=CONDITIONS, default=list(CONDITIONS), metavar="NAME")
    parser.add_argument("--latency", nargs="+", choices=LATENCIES, default=[BALANCED], help="of a session's order")
    parser.add_argument("--length", type=float, default=LENGTH_S, help="seconds of a joined track")
    parser.add_argument("--seed", type=int, default=1, help="of all that is random in a condition")
    parser.add_argument("--threads", type=int, default=1, help="of one model call")
    parser.add_argument("--result", help="name of the result file; without it the figures are only printed")
    given = parser.parse_args()
    choices = choices_of(given)
    engine = load(EngineSettings(engine="whisper", model=choices.model, device="cpu", threads=given.threads))
    voice = Vad()
    bench = partial(Bench, engine, voice)
    groups = {
        name: [
            replace(track, offline=join_words(bench().offline(track.samples, track.language)))
            for track in in_condition(name, choices.clips(), given.seed, given.length)
        ]
        for name in given.conditions
    }
    if len(given.latency) > 1:
        groups = {"all conditions": [track for tracks in groups.values() for track in tracks]}
    result: dict[str, Any] = {"model": choices.name, "threads": given.threads, "length_s": given.length}
    result["seed"] = given.seed
    for latency in given.latency:
        result[latency] = {}
        for name, tracks in groups.items():
            result[latency][name] = row = bench(latency=latency).one_by_one(tracks)
            shown = ("words", "wer", "interval", "wer_gap", "commit_s", "first_seen_s", "erasure")
            print(f"{latency:>9} {name:>18}  " + "  ".join(f"{key} {row.get(key)}" for key in shown), flush=True)
    engine.close()
    if given.result:
        print(write(given.result, result))


if __name__ == "__main__":
    main()
