"""How soon a live word is final against how often it is wrong: python -m benchmarks.tradeoff --result tradeoff

The three choices that sessions have (`latency`: low, balanced, accurate), and LocalAgreement over transcribe() next to
them, on the same joined tracks of people. The clock counts the CPU time of the models alone, so other work on the
machine does not count. The result has the word errors, how many more they are than in the same engine's answer to the
whole recording, and the time from the end of a word until it is final.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from faster_whisper import WhisperModel

from benchmarks import local_agreement
from benchmarks.choices import add_choices, choices_of
from benchmarks.latency import LIVE_CONDITIONS, Bench, in_condition
from benchmarks.live_scores import Scores, Seen, Shown
from benchmarks.measure import RESULTS, write
from benchmarks.tracks import Track
from benchmarks.virtual_time import VirtualTimeLoop
from pipeline.audio import RATE
from pipeline.ingest.vad import VoiceDetector
from pipeline.recognition.engines.load import EngineSettings, load
from pipeline.recognition.latency import LATENCIES
from pipeline.words import join_words

CONDITION_NAMES = ("clean", "telephone", "small room", "pink noise, 20 dB")
LENGTH_S = 90.0  # of a track
PEER = "LocalAgreement over transcribe()"


def agree(model: WhisperModel, tracks: Sequence[Track]) -> dict[str, Any]:
    """Return the scores of LocalAgreement: each answer takes its CPU time, and the next one has what came meanwhile."""
    scores, audio_s, cpu_s = Scores(), 0.0, 0.0
    for track in tracks:
        session = local_agreement.Session(model, "en")
        seen, now_s, taken = [], 0.0, 0
        while taken < len(track.samples):
            now_s = max(now_s, min(taken / RATE + local_agreement.STEP_S, track.seconds))
            come = min(len(track.samples), round(now_s * RATE))
            began = time.process_time()
            final, partial_words = session.answer(track.samples[taken:come], last=come == len(track.samples))
            took_s = time.process_time() - began
            taken, now_s, cpu_s = come, now_s + took_s, cpu_s + took_s
            shown = tuple(Shown(word.text, word.start, word.end) for word in final)
            seen.append(Seen(now_s, final=shown, partial=tuple(word.text for word in partial_words)))
        scores.add(track.truth, seen, offline=track.offline, language=track.language)
        audio_s += track.seconds
    return {**scores.table(), "audio_s": round(audio_s, 1), "cpu_per_audio_s": round(cpu_s / audio_s, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_choices(parser)
    parser.add_argument("--conditions", nargs="+", choices=LIVE_CONDITIONS, default=CONDITION_NAMES, metavar="NAME")
    parser.add_argument("--systems", nargs="+", choices=(*LATENCIES, PEER), default=(*LATENCIES, PEER), metavar="NAME")
    parser.add_argument("--length", type=float, default=LENGTH_S, help="seconds of each track")
    parser.add_argument("--seed", type=int, default=1, help="of all that is random in a condition")
    parser.add_argument("--result", help="name of the result file")
    args = parser.parse_args()
    choices = choices_of(args)
    engine, voice = (
        load(EngineSettings(engine="whisper", model=choices.model, device="cpu", threads=1)),
        VoiceDetector(),
    )
    clock = partial(VirtualTimeLoop, time.process_time)
    plain = Bench(engine, voice, clock=clock)
    tracks = [
        replace(track, offline=join_words(plain.offline(track.samples, track.language)))
        for number, name in enumerate(args.conditions)
        for track in in_condition(name, choices.clips(), args.seed + number, args.length)
    ]
    rows = []
    for system in args.systems:
        if system == PEER:
            scores = agree(WhisperModel(choices.model, device="cpu", compute_type="int8", cpu_threads=1), tracks)
        else:
            scores = Bench(engine, voice, clock=clock, latency=system).one_by_one(tracks)
        rows.append({"system": system, **scores})
        _say(rows[-1])
    engine.close()
    if args.result:
        about = {**choices.about(), "conditions": list(args.conditions), "length_s": args.length, "seed": args.seed}
        print(write(choices.result(args.result), {**about, "systems": _with_earlier(args.result, about, rows)}))


def _with_earlier(name: str, about: dict[str, Any], rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return *rows*, and the rows of other systems that an earlier run on the same tracks has written."""
    path = RESULTS / f"{name}.json"
    earlier = json.loads(path.read_text()) if path.exists() else {}
    same = all(earlier.get(key) == value for key, value in about.items())
    every = {row["system"]: row for row in [*(earlier["systems"] if same else ()), *rows]}
    return [every[system] for system in (*LATENCIES, PEER) if system in every]


def _say(row: dict[str, Any]) -> None:
    names = ("system", "words", "wer", "wer_offline", "wer_gap", "commit_s", "erasure", "cpu_per_audio_s")
    print({name: row.get(name) for name in names}, flush=True)


if __name__ == "__main__":
    main()
