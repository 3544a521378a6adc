"""What the front page says of all that was measured: a few figures, taken from results/*.json."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Result = Mapping[str, Any]
Figures = Iterator[tuple[str, str]]


def rows(results: Mapping[str, Result]) -> Iterator[tuple[str, str, str]]:
    """(what, figure, where and when) of every result that is there."""
    for name, told in TOLD.items():
        if name in results:
            machine = results[name]["machine"]
            for what, figure in told(results[name]):
                yield what, figure, f"{machine['cores']} cores, {machine['cpu'].replace('(R)', '')}, {machine['date']}"


def _peers(result: Result) -> Figures:
    for row in result["systems"]:
        if row["system"] == "scribewire":
            others = [other for other in result["systems"] if other["sessions"] == row["sessions"] and other is not row]
            best = min((other["commit_s"]["p95"] for other in others), default=math.nan)
            beside = (
                f"; the best of {len(others)} others (WhisperLive, WhisperLiveKit, LocalAgreement) {best:.2f} s (95 %)"
            )
            yield (
                f"a live word is final after its end, {_sessions(row['sessions'])}",
                _commit(row) + beside * bool(others),
            )


def _crowd(result: Result) -> Figures:
    together, overload = result["together"], result["overload"]
    lag_ms = together["loop_lag_p99_ms_at_most"]
    beside = f"; {together['unfinished']} dropped, event loop late by at most {lag_ms:g} ms (99 %)"
    yield f"the same, {_sessions(together['sessions'])} on one server", _commit(together) + beside
    beside = f"; {overload['refused']} refused, {overload['finished']} finished, {overload['unfinished']} dropped"
    yield f"the same, while {overload['sessions']} want in", _commit(overload) + beside


def _long(result: Result) -> Figures:
    row, minutes = result["together"], len(result["memory_mb"]["together"]) - 1
    memory = f"memory {row['rss_mb']} MB, in the second half {row['rss_mb_rise_per_min']:.2f} MB more a minute"
    yield f"{_sessions(row['sessions'])} for {minutes} min", f"{row['unfinished']} dropped; {memory}"


def _doctor(result: Result) -> Figures:
    together = result["together"]
    yield f"the same, as many as doctor admits, {_sessions(together['sessions'])}", _commit(together)


def _page(result: Result) -> Figures:
    for engine, row in result["engines"].items():
        yield f"first text on the page after speech began, {engine}", f"{row['first_text_s']['p50']:.2f} s"


def _accuracy(result: Result) -> Figures:
    ours, theirs = result["systems"]["tiny-whisper"], result["systems"]["faster-whisper transcribe()"]
    for group, named in {"all under 15 s": "clips", "espeak long": "a long one"}.items():
        errors = f"{ours[group]['wer']:.1%}; faster-whisper's transcribe() {theirs[group]['wer']:.1%}"
        yield f"word errors of files, small test model, {named}", errors


def _throughput(result: Result) -> Figures:
    rate = f"{result['systems']['ours']['audio_s_per_cpu_s']:.0f} s of audio per CPU second"
    ratios = (
        f"{result['ours_to_batched']:.2f} x BatchedInferencePipeline, {result['ours_to_sequential']:.2f} x transcribe()"
    )
    memory = f"each with its default threads; memory {result['peak_rss_long_to_5_min']:.2f} x that of 5 min"
    yield f"{result['audio_s'] / 60:.0f} min of speech as a file", f"{rate}: {ratios}; {memory}"


def _load(result: Result) -> Figures:
    lag = f"event loop late by at most {result['loop_lag_p99_ms_at_most']:g} ms (99 %)"
    polls = f"a poll takes {result['poll_p50_ms']:.0f} ms"
    memory = f"memory {result['memory_mb'][0]:.0f} -> {result['memory_mb'][-1]:.0f} MB"
    readers = f"{result['streams']} event streams and {result['pollers']} pollers"
    yield f"{readers}, {result['seconds']} s", f"{len(result['errors'])} errors; {lag}; {polls}; {memory}"


def _commit(row: Result) -> str:
    return f"{row['commit_s']['p50']:.2f} s (median), {row['commit_s']['p95']:.2f} s (95 %)"


def _sessions(count: int) -> str:
    return f"{count} session{'s' * (count > 1)}"


TOLD: Mapping[str, Callable[[Result], Figures]] = {
    "peers": _peers,
    "crowd": _crowd,
    "crowd-long": _long,
    "crowd-epyc": _crowd,
    "crowd-doctor": _doctor,
    "page": _page,
    "accuracy": _accuracy,
    "throughput": _throughput,
    "load": _load,
}
