"""Measures whether telling speakers apart changes the words of live sessions, or how soon they are final.

    .venv/bin/python -m benchmarks.speakers_live [--tracks 3] [--seconds 40]    # writes results/speakers_live.json

People speak one after another. Each track is streamed to a server three times, one after the other: without speakers,
with them, and without them again. Live words depend a little on how busy a machine is, so the third session shows how
much two equal sessions differ. Latencies are measured as in benchmarks/latency.py.
"""

import argparse
import asyncio
import json
from functools import partial
from typing import Any

from benchmarks.choices import add_choices, choices_of
from benchmarks.driving import Crowd
from benchmarks.live_scores import Seen
from benchmarks.measure import write
from benchmarks.scoring import word_errors
from benchmarks.serving import Serving, serving
from benchmarks.tracks import Track
from benchmarks.wires import Scribewire

SESSIONS = {"without": False, "with speakers": True, "without again": False}


class WordsOf(Scribewire):
    """Notes the final words of a session."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.words: list[str] = []

    def read(self, message: str, at: float) -> Seen | None:
        seen = super().read(message, at)
        self.words += [word.text for word in seen.final] if seen is not None else []
        return seen


async def measure(server: Serving, tracks: list[Track]) -> dict[str, Any]:
    wires: dict[str, list[WordsOf]] = {name: [] for name in SESSIONS}

    async def open_wire(name: str, track: Track) -> WordsOf:
        wire = await asyncio.to_thread(
            WordsOf.open_session, server.base, server.key, track.language, diarize=SESSIONS[name]
        )
        wires[name].append(wire)
        return wire

    crowds = {name: Crowd(partial(open_wire, name), server.pid) for name in SESSIONS}
    rows = {}
    for track in tracks:
        for name, crowd in crowds.items():
            rows[name] = await crowd.run([track], [0.0])
    plain, labelled, again = ([wire.words for wire in wires[name]] for name in SESSIONS)
    return {
        "sessions": rows,
        "words": sum(map(len, plain)),
        "words that differ with speakers": _differing(plain, labelled),
        "words that differ without them again": _differing(plain, again),
    }


def _differing(one: list[list[str]], other: list[list[str]]) -> int:
    return sum(word_errors(first, second) for first, second in zip(one, other, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tracks", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=40.0, help="of a track")
    parser.add_argument("--no-write", action="store_true", help="print only")
    add_choices(parser)
    given = parser.parse_args()
    choices = choices_of(given)
    with serving(ENGINE="whisper", WHISPER_MODEL=choices.model) as server:
        result = {**choices.about(), **asyncio.run(measure(server, choices.tracks(given.tracks, given.seconds)))}
    print(json.dumps(result, indent=1))
    if not given.no_write:
        print(write("speakers_live", result))


if __name__ == "__main__":
    main()
