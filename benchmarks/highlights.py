"""The most important figures of results/*.json. benchmarks/tables.py writes them into the two pages of figures."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from benchmarks.conditions import CONDITIONS

Result = Mapping[str, Any]
Figures = Iterator[tuple[str, str]]

FINAL_AFTER = "a live word is final after its end"


def rows(results: Mapping[str, Result]) -> Iterator[tuple[str, str, str]]:
    """Yield (what, figure, where and when) of every result that FIGURES names, for benchmarks/README.md.

    Results on people come first. Results of the small test model are left out where the same was measured on people.
    """
    for _, row in _highlights(results):
        yield row


COMPARED = ("scribewire", "faster-whisper transcribe()")


def front(results: Mapping[str, Result]) -> Iterator[tuple[str, str, str]]:
    """Yield the first row of each result that FRONT names, in the order of FRONT, for the README of the repository."""
    shown = list(_highlights(results))
    for wanted in FRONT:
        yield from [row for name, row in shown if name == wanted][:1]


def _highlights(results: Mapping[str, Result]) -> Iterator[tuple[str, tuple[str, str, str]]]:
    for kind, mark in (("", ""), ("-made", " (small test model)")):
        for name, shown in FIGURES.items():
            if name + kind in results and not (kind and name in results):
                result = results[name + kind]
                machine = result["machine"]
                for what, figure in shown(result):
                    cpu = machine["cpu"].replace("(R)", "")
                    yield name, (what + mark, figure, f"{machine['cores']} cores, {cpu}, {machine['date']}")


def _peers(result: Result) -> Figures:
    for row in result["systems"]:
        if row["system"] == "scribewire":
            others = [other for other in result["systems"] if other["sessions"] == row["sessions"] and other is not row]
            best = min((other["commit_s"]["p95"] for other in others), default=math.nan)
            names = ", ".join(dict.fromkeys(name for other in others for name in _brand(other["system"])))
            whose = names if len(others) == 1 else f"the best of {len(others)} others ({names})"
            comparison = f"; {whose} {best:.2f} s (95 %)"
            yield (
                f"{FINAL_AFTER}, {_sessions(row['sessions'])}",
                _commit(row) + comparison * bool(others),
            )


def _brand(system: str) -> list[str]:
    known = {"whisper-live": "WhisperLive", "whisperlivekit": "WhisperLiveKit", "LocalAgreement": "LocalAgreement"}
    return [brand for name, brand in known.items() if re.match(rf"{name}\b", system)]


def _live(result: Result) -> Figures:
    for name, row in result.get("conditions", {}).items():
        if name in SHOWN_CONDITIONS:
            comparison = f"of the whole recording {row['wer_offline']:.1%}"
            yield f"word errors of live words, {name}", f"{row['wer']:.1%}; {comparison}; {_commit(row)}"


def _half_hour(result: Result) -> Figures:
    for name, row in result.get("conditions", {}).items():
        lost = f"{row['lost_first_s'] + row['lost_last_s']} lost in the first or last second of an utterance"
        yield (
            f"{result['length_s'] / 60:.0f} min of people, live, {name}: {row['words']} words",
            (f"{row['said_twice']} said twice ({row['said_twice_offline']} in the whole recording's answer), {lost}"),
        )


def _crowd(result: Result) -> Figures:
    together = result["together"]
    lag_ms = together["loop_lag_p99_ms_at_most"]
    comparison = f"; {together['unfinished']} dropped, event loop late by at most {lag_ms:g} ms (99 %)"
    yield f"{FINAL_AFTER}, {_sessions(together['sessions'])} on one server", _commit(together) + comparison
    if "overload" in result:
        overload = result["overload"]
        comparison = (
            f"; {overload['refused']} refused, {overload['finished']} finished, {overload['unfinished']} dropped"
        )
        yield f"{FINAL_AFTER}, while {overload['sessions']} sessions want in", _commit(overload) + comparison


def _long(result: Result) -> Figures:
    row, minutes = result["together"], len(result["memory_mb"]["together"]) - 1
    memory = f"memory {row['rss_mb']} MB, in the second half {row['rss_mb_rise_per_min']:.2f} MB more a minute"
    yield f"{_sessions(row['sessions'])} for {minutes} min", f"{row['unfinished']} dropped; {memory}"


def _doctor(result: Result) -> Figures:
    together = result["together"]
    yield f"{FINAL_AFTER}, as many as doctor admits, {_sessions(together['sessions'])}", _commit(together)


def _page(result: Result) -> Figures:
    yield "first text on the page after speech began", f"{result['first_text_s']['p50']:.2f} s"


def _accuracy(result: Result) -> Figures:
    rows = [row for group, row in result["word errors"].items() if group in CONDITIONS]
    words = sum(row["words"] for row in rows)
    ours, theirs = (sum(row[name] * row["words"] for row in rows) / words for name in COMPARED) if words else (0, 0)
    if words:
        what = f"word errors of files, {len(rows)} conditions together, {words} words of development clips"
        yield what, f"{ours:.1%}; faster-whisper's transcribe() {theirs:.1%}"
    for group, row in result["word errors"].items():
        if group in SHOWN_CONDITIONS:
            theirs = f"faster-whisper's transcribe() {row['faster-whisper transcribe()']:.1%}"
            yield f"word errors of files, {group}", f"{row['scribewire']:.1%}; {theirs}"


def _phrases_figures(result: Result) -> Figures:
    for half in filter(result.__contains__, ("held out", "development")):
        systems = {name: row["all"] for name, row in result[half].items()}
        theirs = systems["faster-whisper transcribe()"]
        for name, kind in (("scribewire", "files"), ("scribewire live", "live")):
            row = systems[name]
            wrong = f"{row['more than said']} with two or more words too many, {row['fewer than said']} with too few"
            exact = f"digits exact in {row['digits exact']} of {row['with digits']}"
            comparison = (
                f"transcribe() {theirs['more than said']}, {theirs['fewer than said']} and {theirs['digits exact']}"
            )
            yield (
                f"{row['phrases']} phrases with numbers and spelled words, {half}, {kind}",
                f"{wrong}; {exact}; {comparison}",
            )


def _speakers(result: Result) -> Figures:
    halves = {"conversations of 2 to 4, held apart": "held apart", "excerpts of meetings": "meetings"}
    for what, part in halves.items():
        systems = {name: rows.get("conversations", rows.get("meetings")) for name, rows in result[part].items()}
        means = systems["one mean for each speaker"]
        for kind in ("files", "live"):
            row = systems[kind]
            right = f"{row['words right']:.0%} of the words with the right speaker, DER {row['DER']:.1%}"
            voices = f"{row['numbers of voices right']} of {row['recordings']} numbers of voices"
            comparison = f"one mean for each speaker {means['words right']:.0%} and {means['DER']:.1%}"
            cost = f"{row['CPU s a second']:.3f} s of CPU a second"
            yield f"who speaks, {what}, {kind}", f"{right}, {voices}; {comparison}; {cost}"
    alone = [rows[kind] for rows in result["one voice alone"].values() for kind in ("files", "live")]
    pieces = (
        f"{sum(row['with two voices'] for row in alone)} of {sum(row['recordings'] for row in alone)} taken for two"
    )
    yield "one voice alone, from and to anywhere, files and live", pieces


def _speakers_live(result: Result) -> Figures:
    spent = (result["sessions"][name]["commit_s"] for name in ("without", "with speakers"))
    final = " and ".join(f"{one['p50']:.2f}/{one['p95']:.2f} s" for one in spent)
    differ = f"{result['words that differ with speakers']} of {result['words']} words differ"
    again = f"{result['words that differ without them again']} between two sessions without"
    yield "live words with and without speakers", f"{differ}, {again}; final after {final}"


def _long_speakers(result: Result) -> Figures:
    second, last = (row for row in result["hours"] if row["hour"] in (2.0, result["hours"][-1]["hour"]))
    memory = f"memory {second['memory_mb']:.0f} MB after 2 h, {last['memory_mb']:.0f} MB after {last['hour']:.0f} h"
    same = f"{result['words of a voice with its label']:.1%} of the words with the label of their voice"
    longest = f"the longest step takes {result['longest step, s of CPU']:.2f} s of CPU"
    yield f"a session of {result['session h']:g} h, {result['people']} speakers", f"{same}; {memory}; {longest}"


def _throughput(result: Result) -> Figures:
    ours = result["systems"]["ours"]
    rate = (
        f"{result['audio_s'] / ours['wall_s']:.0f} s of audio a second, {ours['audio_s_per_cpu_s']:.0f} s a CPU second"
    )
    batched = (
        f"{result['cpu_batched_to_ours']:.2f} x the CPU time and {1 / result['wall_ours_to_batched']:.2f} x the time"
    )
    sequential = (
        f"transcribe() {result['cpu_sequential_to_ours']:.2f} x and {1 / result['wall_ours_to_sequential']:.2f} x"
    )
    comparison = f"BatchedInferencePipeline takes {batched}, {sequential}; each with its default threads"
    yield (
        f"{result['audio_s'] / 60:.0f} min of speech as a file",
        f"{rate}: {comparison}; memory {ours['peak_rss_mb']:.0f} MB",
    )


def _load(result: Result) -> Figures:
    lag = f"event loop late by at most {result['loop_lag_p99_ms_at_most']:g} ms (99 %)"
    polls = f"a poll takes {result['poll_p50_ms']:.0f} ms"
    memory = f"memory {result['memory_mb'][0]:.0f} -> {result['memory_mb'][-1]:.0f} MB"
    readers = f"{result['streams']} event streams and {result['pollers']} pollers"
    yield f"{readers}, {result['seconds']} s", f"{len(result['errors'])} errors; {lag}; {polls}; {memory}"


def _readers(result: Result) -> Figures:
    for row in result["readers"]:
        if "share_of_bare" in row:
            late = f"{row['late_s']['p50']:.2f} s late (median), {row['late_s']['p95']:.2f} s (95 %)"
            cost = f"{row['cpu_us_per_event']:.0f} us of CPU time an event and reader"
            share = f"{row['share_of_bare']:.2f} of what a bare asyncio server sends a CPU second"
            yield f"readers of one live session, {row['system']}", f"{late}; {row['cores']:.2f} cores, {cost}; {share}"
    memory = ", ".join(f"{row['kb_each']:.0f} kB ({row['name']})" for row in result["quiet"])
    yield "memory of a quiet reader", memory


def _relay_figures(result: Result) -> Figures:
    for row in result["readers"]:
        there = row["relaying"]
        late = f"{there['late_s']['p50']:.2f} s late (median), {there['late_s']['p95']:.2f} s (95 %)"
        cost = f"{there['cpu_us_per_event']:.0f} us of CPU time an event and reader"
        times = f"{row['relaying_to_hearing']:.2f} x that at the node that hears"
        yield f"readers at another node than the session's, {row['name']}", f"{late}; {cost}, {times}"


def _cluster(result: Result) -> Figures:
    embedded, cluster, share = (
        result["stores"]["embedded"],
        result["stores"]["cluster"],
        result["cluster_to_embedded"],
    )
    late = f"{cluster['late_s']['p50']:.2f} s (median), {cluster['late_s']['p95']:.2f} s (95 %)"
    own = f"{embedded['late_s']['p50']:.2f} s and {embedded['late_s']['p95']:.2f} s by another process, embedded"
    yield f"words of {result['sessions']} live sessions, read at another node", f"{late} after they were said; {own}"
    rates = ", ".join(
        f"{cluster[f'{what}_per_s']:.0f} {what} a second ({share[f'{what}_per_s']:g} of embedded)"
        for what in ("submits", "claims", "finishes", "events")
    )
    yield "a database server and a node on these cores", rates


def _capacity(result: Result) -> Figures:
    needed, first = result["needed"], result["breaks_first"][0]
    nodes = f"{needed['worker nodes']['value']} worker nodes and {needed['live nodes']['value']} live nodes"
    breaks = f"first the {first['name']}: {first['share']:g} times what one server carries"
    yield (
        f"computed: {result['audio_hours_a_day']:,.0f} h of files a day and {result['live_sessions']:,} live sessions",
        f"{nodes} of {result['node_cores']} cores; {breaks}",
    )


def _requests(result: Result) -> Figures:
    for row in result["kinds"]:
        cost = f"{row['scribewire cpu_us']} us of CPU time; a bare Starlette app {row['bare cpu_us']} us"
        half = row["half_load"]
        yield (
            f"a request: {row['name']}",
            f"{cost}; at half load {half['p50_ms']:.1f} ms (median), {half['p99_ms']:.1f} ms (99 %)",
        )


def _uploads(result: Result) -> Figures:
    ours = next(row for row in result["systems"] if "times_bare" in row)
    figure = f"{ours['cpu_s']:.2f} s of CPU time, {ours['times_bare']:.2f} x a bare app that writes it into a file"
    yield f"an upload of {result['mb']} MiB", figure
    if "together" in result:
        later = f"live words are later by {result['together']['later_p95_s']:.2f} s (95 %)"
        yield f"{result['at_once']} uploads at once", later


def _disturbances(result: Result) -> Figures:
    for row in result["beside"]:
        late = f"{row['late_s']['p50']:.3f} s late (median), {row['late_s']['p95']:.3f} s (95 %)"
        yield f"words of {result['calm']} readers, {row['name']}", late


def _commit(row: Result) -> str:
    return f"{row['commit_s']['p50']:.2f} s (median), {row['commit_s']['p95']:.2f} s (95 %)"


def _sessions(count: int) -> str:
    return f"{count} session{'s' * (count > 1)}"


SHOWN_CONDITIONS = (
    "clean", "joined", "short alone", "cut anywhere", "pink noise, 10 dB", "small room", "telephone",
    "30 dB quieter", "45 dB quieter",
    "made en", "made, long",
)  # fmt: skip
FIGURES: Mapping[str, Callable[[Result], Figures]] = {
    "accuracy": _accuracy,
    "said": _phrases_figures,
    "latency": _live,
    "latency-half-hour": _half_hour,
    "peers": _peers,
    "crowd": _crowd,
    "crowd-long": _long,
    "crowd-epyc": _crowd,
    "crowd-doctor": _doctor,
    "page": _page,
    "speakers": _speakers,
    "speakers_live": _speakers_live,
    "long_speakers": _long_speakers,
    "throughput": _throughput,
    "load": _load,
    "readers": _readers,
    "relaying": _relay_figures,
    "disturbances": _disturbances,
    "requests": _requests,
    "cluster": _cluster,
    "capacity": _capacity,
    "uploads": _uploads,
}
"""By name of a result on people: the figures that are shown. Names of results on made speech end with "-made"."""

FRONT = ("peers", "accuracy", "said", "speakers", "throughput")
"""The results that the README of the repository shows one figure of."""
