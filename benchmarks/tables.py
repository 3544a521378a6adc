"""Writes the figures of results/*.json into benchmarks/README.md and README.md: python -m benchmarks.tables

A page has `<!-- NAME -->` and `<!-- end -->` around each table, and NAME is one of TABLES. All else is written by hand.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

HERE = Path(__file__).parent
PAGES = (HERE / "README.md", HERE.parent / "README.md")

Row: TypeAlias = Mapping[str, Any]

SHOWN_FLOODS = 5


class Spread(dict[str, float]):
    """Percentiles of seconds, which a page shows as half of the values and 95 % of them."""

    def __format__(self, spec: str) -> str:
        return f"{self['p50']:{spec or '.2f'}}/{self['p95']:{spec or '.2f'}} s"


# fmt: off
NAMES = {"en": "English", "es": "Spanish", "fr": "French", "it": "Italian", "ru": "Russian", "nl": "Dutch actors",
         "cs": "Czech actors"}
"""The languages of the table, as it shows them."""

IN_SHORT = (
    ("Delay until a live word is final (half of the words/95 % of them), `tiny.en`, English",
     "1 session {peers[systems][0][commit_s]}, 8 sessions {peers[systems][2][commit_s]}", "peers"),
    (("Word error rate, held-out speakers, default settings; in parentheses faster-whisper's `transcribe()` "
      "with `base` and the language given"),
     "; ".join(f"{name} {{languages[{code} joined][detected][wer]:.1%}} "
               f"({{languages[{code} joined][transcribe()][wer]:.1%}})"
               for code, name in NAMES.items() if code not in {"nl", "cs"}), "languages"),
    ("Live sessions at once with a fake engine, and the delay of their words",
     ", ".join(f"{n}: {{crowd[sessions][{row}][late_s]}}" for n, row in ((200, 7), (400, 9))), "crowd"),
)
# fmt: on
"""The three figures of the front page: what, figure, the result that has the machine."""


def main() -> None:
    for page in PAGES:
        page.write_text(with_tables(page.read_text()))


def with_tables(page: str) -> str:
    """Return *page* with each table made anew.

    Raises KeyError for a name that is not in TABLES, ValueError if a table shows figures of a machine that it does not
    name.
    """

    def render(found: re.Match[str]) -> str:
        head, template, rows, measured = TABLES[found[1]]
        _read.clear()
        lines = (head, re.sub(r"[^|]+", " --- ", head).strip(), *(template.format_map(row) for row in rows()))
        hidden = {machine(name) for name in _read} - {machine(name) for name in measured.values()}
        if measured and hidden:
            raise ValueError(f"{found[1]}: rows of {', '.join(hidden)} stand below the label of another machine")
        labels = [machine(name) + (f" ({what})" if what else "") for what, name in measured.items()]
        where = (f"\nMeasured on {'; '.join(labels)}.",) if labels else ()
        return "\n".join((f"<!-- {found[1]} -->", *(f"| {line} |" for line in lines), *where, "<!-- end -->"))

    return re.sub(r"<!-- ([a-z ]+) -->\n.*?<!-- end -->", render, page, flags=re.DOTALL)


_read: set[str] = set()  # the results that the table in work has read


def result(name: str) -> Any:
    """Return the result *name* of results/, and note that it was read."""
    _read.add(name)
    return results()[name]


@cache
def results() -> dict[str, Any]:
    read = partial(json.loads, object_hook=lambda one: Spread(one) if "p50" in one else one)
    return {path.stem: read(path.read_text()) for path in (HERE / "results").glob("*.json")}


def machine(name: str) -> str:
    about = results()[name]["machine"]
    cpu = about["cpu"].replace("(R)", "").removesuffix(" Processor")
    return f"{about['cores']} cores, {cpu}, {about['date']}, {about['commit']}"


def in_short() -> Iterator[Row]:
    for what, figure, name in IN_SHORT:
        yield {"what": what, "figure": figure.format_map(results()), "machine": machine(name)}


def named(rows: Mapping[str, Row]) -> Iterator[Row]:
    for name, row in rows.items():
        yield {"name": name, **row}


def throughput() -> Iterator[Row]:
    for row in named(result("throughput")["systems"]):
        yield {**row, "rss_mb": row["peak_rss_mb"], "audio_s": 660, "machine": machine("throughput")}
    for row in result("held-back")["cost of the joined 357 s"]:
        yield {**row, "audio_s": 357, "machine": machine("held-back")}


def languages() -> Iterator[Row]:
    """Yield the figures of each language: without a setting, with `language`, and by transcribe()."""
    for code, name in NAMES.items():
        ways = result("languages")[f"{code} joined"]
        low, high = (100 * share for share in ways["detected"]["difference_interval"])
        yield {"name": name, **ways, "theirs": ways["transcribe()"], "apart": f"{low:+.1f} to {high:+.1f}"}


def latency_choices() -> Iterator[Row]:
    for name in ("low", "balanced", "accurate"):
        yield {"name": name, **result("latency-choices")[name]["all conditions"]}


def speakers() -> Iterator[Row]:
    for half, group in (("held apart", "conversations"), ("development", "conversations"), ("meetings", "meetings")):
        for how in ("files", "live"):
            yield {
                "what": group if group == half else f"{group}, {half}",
                "how": how,
                **result("speakers")[half][how][group],
            }


def floods() -> Iterator[Row]:
    """Yield the worst floods of the SHOWN_FLOODS worst kinds, then the worst of all others.

    Each row has the server that is flooded, and another node.
    """
    ours, other = (dict(result(name)["floods"]) for name in ("floods", "floods-cluster"))
    kinds = dict.fromkeys(name.partition(",")[0] for name in ours)

    def of(found: Mapping[str, Row], *kinds: str) -> list[Row]:
        return [row for name, row in found.items() if name.partition(",")[0] in kinds]

    ranked = sorted(kinds, key=lambda kind: max(row["healthz_ms"]["longest"] for row in of(ours, kind)), reverse=True)
    rest = ranked[SHOWN_FLOODS:]
    for name, shown in (*((kind, (kind,)) for kind in ranked[:SHOWN_FLOODS]), (f"{len(rest)} other kinds", rest)):
        yield {"kind": name, "one": worst(of(ours, *shown)), "two": worst(of(other, *shown))}
    both = ([result(name)["undisturbed"]] for name in ("floods", "floods-cluster"))
    yield dict(zip(("kind", "one", "two"), ("(no flood)", *map(worst, both)), strict=True))


def worst(rows: Sequence[Row]) -> str:
    p95, longest = (max(row["healthz_ms"][name] for row in rows) for name in ("p95", "longest"))
    return f"{p95:.1f}/{longest:.1f} ms | {max(row['live']['lag_s']['p95'] for row in rows):.2f} s"


def soak() -> Iterator[Row]:
    for name in ("soak", "soak-attacked"):
        row = result(name)
        done = sum(row["done"].values()) - sum(row["done"][event] for event in ("kill", "stop", "full disk"))
        hours, faults = row["plan"]["seconds"] / 3600, len(row["faults"])
        yield {**row, "name": name, "all": done, "hours": hours, "wrong": faults, "machine": machine(name)}


# fmt: off
TABLES: Mapping[str, tuple[str, str, Callable[[], Iterable[Row]], Mapping[str, str]]] = {
    "in short": ("what | figure | measured on", "{what} | {figure} | {machine}", in_short, {}),
    "languages": (
        "language | clips | words | nothing set | language given | `transcribe()` | difference, 95 % | language right",
        ("{name} | {detected[clips]} | {detected[words]} | {detected[wer]:.1%} | {given[wer]:.1%} | "
         "{theirs[wer]:.1%} | {apart} | {detected[languages_right][0]} of {detected[languages_right][1]}"),
        languages, {"": "languages"}),
    "throughput": (
        "system | file, s | CPU, s | time, s | memory, MB | measured on",
        "{name} | {audio_s} | {cpu_s} | {wall_s} | {rss_mb:.0f} | {machine}",
        throughput, {}),
    "peers": (
        "system | sessions | words | wrong | final after, 50/95 % | CPU s a second of audio | memory, MB",
        "{system} | {sessions} | {words} | {wer:.1%} | {commit_s} | {cpu_per_audio_s:.2f} | {rss_mb}",
        lambda: result("peers")["systems"], {"": "peers"}),
    "live": (
        "condition | words | wrong | as a file | final after, 50/95 % | shown after, 50/95 % | erasure",
        "{name} | {words} | {wer:.1%} | {wer_offline:.1%} | {commit_s} | {first_seen_s} | {erasure:.2f}",
        lambda: named(result("latency")["balanced"]), {"": "latency"}),
    "latency choices": (
        "`latency` | words | wrong | final after, 50/95 % | erasure | CPU s a second of audio",
        "{name} | {words} | {wer:.1%} | {commit_s} | {erasure:.2f} | {cpu_per_audio_s:.2f}",
        latency_choices, {"": "latency-choices"}),
    "speakers": (
        "recordings | how | words | right speaker | DER | number of voices right | CPU s a second",
        ("{what} | {how} | {words} | {words right:.1%} | {DER:.1%} | {numbers of voices right} of {recordings} | "
         "{CPU s a second:.3f}"),
        speakers, {"": "speakers"}),
    "crowd": (
        "sessions | nodes | server | cores a session | words late, 50/95 % | kB a session",
        "{sessions} | {nodes} | {server} | {cores_a_session:.4f} | {late_s} | {kb_a_session}",
        lambda: result("crowd")["sessions"], {"": "crowd"}),
    "readers": (
        "readers | late, 50/95 % | cores | CPU us an event and reader",
        "{system} | {late_s} | {cores:.2f} | {cpu_us_per_event}",
        lambda: result("readers")["readers"], {"": "readers"}),
    "floods": (
        "flood | one machine: wait, 95 %/longest | words late, 95 % | the other node: wait | words late",
        "{kind} | {one} | {two}",
        floods, {"one machine": "floods", "two nodes": "floods-cluster"}),
    "soak": (
        "soak | hours | done | kills, stops, full disks | faults | memory more an hour | measured on",
        ("{name} | {hours:g} | {all} | {done[kill]}, {done[stop]}, {done[full disk]} | {wrong} | "
         "{growth[rss_mb][per_hour]} MB | {machine}"),
        soak, {}),
}
"""The head of each table, the form of its rows, what gives them, and the results whose machines stand below it, by what
they measured. None: each row names its own machine."""
# fmt: on

if __name__ == "__main__":
    main()
