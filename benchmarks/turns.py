"""Where turns end, by silence and by meaning: python -m benchmarks.turns

    .venv/bin/python -m benchmarks.turns                                  # every system, in five conditions
    .venv/bin/python -m benchmarks.turns --systems silence medium --conditions clean

Each clip of a person is one session. Every pause inside a sentence is widened to 1.2 s, in which no turn may end, and
six seconds of silence follow every sentence, in which one must. The result has the share of pauses inside sentences in
which a turn ended, and for ends of sentences the time from the last word to the event, which comes when all words are
final. The clock counts the CPU time of the models alone, so other work on the machine does not count.

The thresholds of pipeline/recognition/turn_checks.py were chosen on these clips in these conditions. --clips takes the
folder of others, whose manifest may name the words that end sentences inside a clip, as "ends".
"""

import argparse
import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.choices import Choices, add_choices, choices_of
from benchmarks.conditions import CONDITIONS, pauses
from benchmarks.measure import spread, write
from benchmarks.scoring import spoken_words, word_errors
from benchmarks.tracks import Track, rows_of
from benchmarks.virtual_time import VirtualTimeLoop
from pipeline.audio import RATE, WINDOW, Samples, position
from pipeline.events import Event, SegmentClosed, WordsCommitted
from pipeline.ingest.vad import VoiceDetector
from pipeline.recognition.engine import Engine
from pipeline.recognition.engines.load import EngineSettings, load
from pipeline.recognition.scheduler import Scheduler
from pipeline.recognition.stream import StreamCore
from pipeline.recognition.stream_options import StreamOptions, with_turn_checks
from pipeline.recognition.turn_checks import EAGERNESS
from pipeline.recognition.turn_end import TurnEndDetector, TurnEndModel
from pipeline.recognition.turns import TurnOptions
from pipeline.session import Session

CONDITION_NAMES = ("clean", "small room", "telephone", "pace 1.1", "pink noise, 20 dB")
SYSTEMS = ("silence", "low", "medium", "high")
SILENCE_MS = 500
INSIDE_S, AFTER_S = 1.2, 6.0
NEAR_S = 0.4  # how far the end of a turn may lie from where a pause begins
FLOOR_DB = -70.0  # noise of the pauses, relative to full scale

UNFINISHED = frozenset({"austen_0880", "LJ001-0004"})
"""Clips whose last sentence goes on in the book, after a comma."""

INNER_ENDS = {"two_cities": frozenset({"way"})}
"""Words that end a sentence within a clip."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of a track: where the word before it ends, and whether the sentence is finished there. Seconds."""

    after: float
    finished: bool


class CountedEnds:
    """A TurnEndDetector that counts its checks."""

    def __init__(self, ends: TurnEndDetector) -> None:
        self._ends = ends
        self.checks = 0

    async def probability(self, turn: Samples) -> float:
        self.checks += 1
        return await self._ends.probability(turn)


@dataclass
class Tally:
    """What one system did in one condition, or in all."""

    cut: int = 0  # pauses inside sentences in which a turn ended
    inside: int = 0
    late_s: list[float] = field(default_factory=list)  # by finished sentence, from its last word to the end of the turn
    errors: int = 0
    words: int = 0
    checks: int = 0
    audio_s: float = 0.0

    def add(self, other: "Tally") -> None:
        for name in ("cut", "inside", "late_s", "errors", "words", "checks", "audio_s"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def row(self) -> dict[str, Any]:
        return {
            "cut": self.cut,
            "inside": self.inside,
            "ends": len(self.late_s),
            "late_s": spread(self.late_s, 2),
            "wer": round(self.errors / max(1, self.words), 4),
            "words": self.words,
            "checks_per_audio_s": round(self.checks / self.audio_s, 3),
        }


def widen_pauses(
    clip: Track, ends: frozenset[str], *, unfinished: bool, chance: np.random.Generator
) -> tuple[Track, list[Pause]]:
    """Return the clip with long pauses, and these pauses. The word times of the track are moved."""
    cuts = [*pauses(clip), (clip.seconds, len(clip.truth))]
    parts: list[Samples] = []
    truth, found = [], []
    begin, first, shift = 0.0, 0, 0.0
    for at, count in cuts:
        last = clip.truth[count - 1]
        finished = (count == len(clip.truth) and not unfinished) or last.text.strip(".,;:").lower() in ends
        truth += [type(word)(word.text, word.start + shift, word.end + shift) for word in clip.truth[first:count]]
        silence = floor_noise(AFTER_S if finished or count == len(clip.truth) else INSIDE_S, chance)
        parts += [clip.samples[round(begin * RATE) : round(at * RATE)], silence]
        if finished or count < len(clip.truth):
            found.append(Pause(last.end + shift, finished))
        begin, first, shift = at, count, shift + len(silence) / RATE
    return Track(clip.name, clip.language, np.concatenate(parts), tuple(truth)), found


def floor_noise(length_s: float, chance: np.random.Generator) -> Samples:
    """Return faint noise, which is what a quiet room sounds like."""
    noise = chance.standard_normal(round(length_s * RATE), dtype=np.float32)
    return np.asarray(noise * 10 ** (FLOOR_DB / 20), np.float32)


def made_tracks(choices: Choices, condition: str) -> Iterator[tuple[Track, list[Pause]]]:
    """Yield the tracks of a condition with their pauses."""
    ends = dict(INNER_ENDS)
    for folder in choices.folders:
        ends |= {path.stem: frozenset(row["ends"]) for row, path in rows_of(folder) if row.get("ends")}
    for number, clip in enumerate(choices.clips()):
        [varied] = CONDITIONS[condition]([clip], 1)
        chance = np.random.default_rng(number)
        name = Path(clip.name).stem
        yield widen_pauses(varied, ends.get(name, frozenset()), unfinished=name in UNFINISHED, chance=chance)


def options_of(system: str) -> StreamOptions:
    if system == "silence":
        return StreamOptions(turns=TurnOptions(endpointing=position(SILENCE_MS / 1000)))
    return with_turn_checks(StreamOptions(), EAGERNESS[system])


class Bench:
    """The models that all systems share."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._voice = VoiceDetector()
        self._ends = TurnEndDetector()

    def run(self, system: str, tracks: Sequence[tuple[Track, list[Pause]]]) -> Tally:
        """Return what a system did on these tracks, each a session of its own."""
        tally, ends = Tally(), CountedEnds(self._ends)

        async def main() -> None:
            scheduler = Scheduler(self._engine)
            for track, found in tracks:
                core, vad = StreamCore(options_of(system)), self._voice.stream()
                session = Session(core, vad=vad, recogniser=scheduler, turn_ends=ends)
                count(tally, track, found, await play(track, session))
            scheduler.close()

        with asyncio.Runner(loop_factory=partial(VirtualTimeLoop, time.process_time)) as runner:
            runner.run(main())
        tally.checks = ends.checks
        return tally

    def check_ms(self) -> float:
        """Return the CPU time of one check, the median of many."""
        model, sound, times = TurnEndModel(), floor_noise(8.0, np.random.default_rng(0)), []
        for _ in range(20):
            began = time.process_time()
            model(sound)
            times.append(time.process_time() - began)
        return round(1000 * float(np.median(times)), 1)


async def play(track: Track, session: Session) -> list[tuple[float, Event]]:
    """Send a track at the speed of speech; return the events, each with the seconds since the track began."""
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def send() -> None:
        for at in range(0, len(track.samples), WINDOW):
            frame = track.samples[at : at + WINDOW]
            await asyncio.sleep(began + (at + len(frame)) / RATE - loop.time())
            await session.feed(frame)
        session.end()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(session.run())
        tasks.create_task(send())
        return [(loop.time() - began, happened.event) async for happened in session.events()]


def count(tally: Tally, track: Track, found: Sequence[Pause], heard: Sequence[tuple[float, Event]]) -> None:
    """Add what happened in one track to the tally."""
    ends = [
        (event.segment.words[-1].end / RATE, told_s)
        for told_s, event in heard
        if isinstance(event, SegmentClosed) and not event.forced
    ]
    for pause in found:
        there = [told_s for at, told_s in ends if abs(at - pause.after) <= NEAR_S]
        if pause.finished:
            tally.late_s.append(there[0] - pause.after if there else AFTER_S)
        else:
            tally.inside += 1
            tally.cut += any(told_s < pause.after + INSIDE_S + NEAR_S for told_s in there)
    words = [word.text for _, event in heard if isinstance(event, WordsCommitted) for word in event.words]
    said = spoken_words(" ".join(word.text for word in track.truth))
    tally.errors += word_errors(said, spoken_words(" ".join(words)))
    tally.words += len(said)
    tally.audio_s += track.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_choices(parser)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    parser.add_argument("--conditions", nargs="+", choices=tuple(CONDITIONS), default=CONDITION_NAMES, metavar="NAME")
    parser.add_argument("--result", help="name of the result file")
    args = parser.parse_args()
    choices = choices_of(args)
    engine = load(EngineSettings(engine="whisper", model=choices.model, device="cpu", threads=1))
    bench = Bench(engine)
    result: dict[str, Any] = {**choices.about(), "check_ms": bench.check_ms(), "systems": {}}
    for system in args.systems:
        total, rows = Tally(), {}
        for condition in args.conditions:
            tally = bench.run(system, list(made_tracks(choices, condition)))
            rows[condition] = tally.row()
            total.add(tally)
            print(f"{system:>8} {condition:>18}  {rows[condition]}", flush=True)
        result["systems"][system] = {"all": total.row(), **rows}
        print(f"{system:>8} {'all':>18}  {total.row()}", flush=True)
    engine.close()
    if args.result:
        print(write(choices.result(args.result), result))


if __name__ == "__main__":
    main()
