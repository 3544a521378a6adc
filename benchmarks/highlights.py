"""What the front page says of all that was measured: a few figures, taken from results/*.json."""

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
                yield what, figure, f"{machine['cores']} cores, {machine['date']}"


def _peers(result: Result) -> Figures:
    ours = {row["sessions"]: row for row in result["systems"] if row["system"] == "scribewire"}
    for count, row in ours.items():
        others = [other for other in result["systems"] if other["sessions"] == count and other is not row]
        best = min((other["commit_s"]["p95"] for other in others), default=None)
        beside = "" if best is None else f"; the best of {len(others)} others: {best:.2f} s for 95 %"
        yield (
            f"live words are final after their end in the audio, {_sessions(count)}",
            f"{row['commit_s']['p50']:.2f} s (median), {row['commit_s']['p95']:.2f} s (95 %){beside}",
        )


def _crowd(result: Result) -> Figures:
    together, overload = result["together"], result["overload"]
    yield (
        f"the same, {_sessions(together['sessions'])} on one server",
        (
            f"{together['commit_s']['p50']:.2f} s, {together['commit_s']['p95']:.2f} s; {together['unfinished']} dropped, "
            f"event loop late by at most {together['loop_lag_p99_ms_at_most']:g} ms (99 %)"
        ),
    )
    yield (
        f"{overload['sessions']} sessions want in within {overload['sessions'] // 4} s",
        (
            f"{overload['refused']} are refused, {overload['finished']} finish, their words final after "
            f"{overload['commit_s']['p50']:.2f} s, {overload['commit_s']['p95']:.2f} s"
        ),
    )


def _page(result: Result) -> Figures:
    for engine, row in result["engines"].items():
        yield f"first text on the page after speech begins, {engine}", f"{row['first_text_s']['p50']:.2f} s"


def _accuracy(result: Result) -> Figures:
    ours, theirs = result["systems"]["tiny-whisper"], result["systems"]["faster-whisper transcribe()"]
    for what in ("all under 15 s", "espeak long"):
        yield (
            f"word errors of files, the small test model, {what.replace('espeak ', '')}",
            f"{ours[what]['wer']:.1%}; faster-whisper's transcribe(): {theirs[what]['wer']:.1%}",
        )


def _throughput(result: Result) -> Figures:
    yield (
        f"{result['audio_s'] / 60:.0f} min of speech as a file",
        (
            f"{result['systems']['ours']['audio_s_per_cpu_s']:.0f} s of audio per CPU second, "
            f"{result['ours_to_batched']:.2f} times BatchedInferencePipeline, "
            f"{result['ours_to_sequential']:.2f} times transcribe(); memory {result['peak_rss_long_to_5_min']:.2f} times "
            "that of 5 min"
        ),
    )


def _load(result: Result) -> Figures:
    yield (
        f"{result['streams']} event streams and {result['pollers']} pollers while jobs run, {result['seconds']} s",
        (
            f"{len(result['errors'])} errors, event loop late by at most {result['loop_lag_p99_ms_at_most']:g} ms (99 %), "
            f"polls take {result['poll_p50_ms']:.0f} ms, memory {result['memory_mb_early']:.0f} -> "
            f"{result['memory_mb_late']:.0f} MB"
        ),
    )


def _sessions(count: int) -> str:
    return f"{count} session{'s' * (count > 1)}"


TOLD: Mapping[str, Callable[[Result], Figures]] = {
    "peers": _peers,
    "crowd": _crowd,
    "page": _page,
    "accuracy": _accuracy,
    "throughput": _throughput,
    "load": _load,
}
