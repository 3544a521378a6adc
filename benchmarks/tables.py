"""The results as tables: python -m benchmarks.tables writes benchmarks/README.md from benchmarks/results/*.json.

It also writes the figures of highlights.FRONT into the README of the repository. No number in these tables is typed
by hand. Whatever a benchmark writes is shown: the numbers of a group as one line of a table, groups of groups as
tables of their own. Live words are measured in sixty ways, of which LIVE is shown. Results on people come first, then
the small test model's.
"""

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import highlights

HERE = Path(__file__).parent
HEAD = """# Measured

Made by `python -m benchmarks.tables` from `results/*.json`; each result names its machine, versions and commit. The
machines were shared and busy: compare what stands in one table, not across them.

Whisper `tiny.en` recognises recordings of people, in the conditions that `conditions.py` makes of them: "clean" are the
clips as they are, "short alone" utterances of 1 to 4 s sent one by one, "cut anywhere" pieces cut at any sample,
"joined" a track on which all of them speak. Other models and recordings: `--model` and `--clips` of every benchmark.

To judge on speech of your own, or on LibriSpeech, give its folder: `python -m benchmarks.corpus FOLDER` prints words,
word errors and speed of this server, of both ways of faster-whisper and, with `--ggml`, of whisper.cpp, and with
`--live` errors and latency of live words. The folder has LibriSpeech's layout, or audio files with a `.txt` of the same
name next to each. Words are compared in lower case without punctuation; nothing is written without `--write`.
"""
MADE = """
# The small test model

It knows a few hundred words of made voices and nothing else. Its figures show how the program behaves, not how well
speech is recognised.
"""
LIVE = {
    "sessions": "streams at once",
    "finished": "of these, how many said at the end that they had said everything",
    "refused": "how many were not let in",
    "commit_s p50": "seconds from the end of a word in the audio to the event that makes it final for its reader",
    "commit_s p95": "",
    "first_seen_s p50": "the same for the first event that shows the word at all",
    "first_partial_s p50": "from the beginning of an utterance to the next event that shows words; of servers that "
    "show old words again, a lower bound",
    "first_commit_s p50": "the same to its first final word",
    "final_s p50": "from the end of an utterance's last word to the event that closes it",
    "final_beyond_endpointing_s p50": "that, less the 0.5 s of silence that end an utterance",
    "laal_s": "length-adaptive average lagging of final words, utterance by utterance, as a reader sees it",
    "laal_unaware_s": "the same as if no computation took time: what the policy alone waits for",
    "words": "words that were said; numbers count as one, however they are written",
    "wer": "word errors of the final words, as a share of the words that were said",
    "wer_gap": "that, minus what the same engine gets wrong when it has the whole recording",
    "coverage": "share of the words said that came out right: latency is that of these",
    "said_twice": "words that repeat their neighbours and were not said, as happens where a window was cut",
    "said_twice_offline": "the same in what the engine makes of the whole recording",
    "lost_first_s": "words in the first second of an utterance that the engine knows from the whole recording and that "
    "never came",
    "lost_last_s": "the same in the last second of an utterance",
    "coverage_of_offline": "words that came out right, as a share of those of the whole recording",
    "lost_at_end": "words of the last 1.5 s that the engine knows from the whole recording and that never came",
    "start_error_s p50": "how far the start of a word is from where it was spoken, where the server gives times",
    "end_error_s p50": "and its end",
    "erasure": "words shown and taken back, for each final word (normalised erasure)",
    "retractions": "final words that changed later",
    "cpu_per_audio_s": "CPU seconds of the server and all its processes, for each second of audio",
    "rss_mb": "most memory of all these processes, in MiB",
    "rss_mb_rise_per_min": "how much it grew each minute over the second half of the run",
    "loop_lag_p99_ms_at_most": "how late the server's event loop wakes up",
}
"""The columns that tables of live words show, and what they mean."""

COLUMNS = ("what", "figure", "measured on")
BEGIN, END = "<!-- made by python -m benchmarks.tables -->", "<!-- end -->"

ABOUT = ("machine",)


def page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return benchmarks/README.md: the highlights, all results, and the small test model's under their own heading."""
    made = {name for name, result in results.items() if result.get("speech") == "made"}
    first = "".join(section(name, result) for name, result in results.items() if name not in made)
    last = "".join(section(name, result) for name, result in results.items() if name in made)
    short = "\n".join(("\n## In short\n", *table(COLUMNS, highlights.rows(results)), ""))
    return HEAD + short + meanings() + first + (MADE + last if last else "")


def front_page(text: str, results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return *text*, the README of the repository, with the figures of highlights.front() between BEGIN and END."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    lines = table(COLUMNS, highlights.front(results))
    return "\n".join((before + begin, *lines, end + after))


def meanings() -> str:
    """Return the meanings of the columns of live words. PCM frames of 32 ms are sent when their end would be spoken."""
    lines = [f"- `{name}`: {meaning}" for name, meaning in LIVE.items() if meaning]
    return "\n".join(("\nOf live words:\n", *lines, ""))


def section(name: str, result: Mapping[str, Any]) -> str:
    picture = [f"\n![{name}](results/{name}.svg)"] if (HERE / "results" / f"{name}.svg").exists() else []
    lines = [f"\n## {name}\n", f"{purpose(name)}\n", *about(result), *picture, ""]
    body = {key: value for key, value in result.items() if key not in ABOUT}
    return "\n".join([*lines, *tables(body), ""])


def purpose(name: str) -> str:
    """Return the first line of the docstring of the benchmark or script that the name of a result begins with."""
    program = f"{name.partition('-')[0]}.py"
    source = HERE / program
    if not source.exists():
        source = HERE.parent / "scripts" / program
    return (ast.get_docstring(ast.parse(source.read_text())) or "").partition("\n")[0].partition(": python ")[0]


def about(result: Mapping[str, Any]) -> Iterator[str]:
    for key in ABOUT:
        if key in result:
            yield f"- {key}: {text_of_value(result[key])}"


def text_of_value(value: Any) -> str:
    return (
        ", ".join(f"{name} {text_of_value(part)}" for name, part in value.items())
        if isinstance(value, dict)
        else str(value)
    )


def tables(body: Mapping[str, Any], title: str = "") -> Iterator[str]:
    """Yield numbers as a two-column table, groups of numbers as rows of one table, and deeper groups one by one."""
    scalars = {key: value for key, value in body.items() if not isinstance(value, dict) and not is_rows(value)}
    rows = [(key, flat(value)) for key, value in body.items() if isinstance(value, dict) and is_row(value)]
    for value in body.values():
        if is_rows(value):
            rows += [(label(item), flat(item)) for item in value]
    if title and (scalars or rows):
        yield f"\n### {title}\n"
    if scalars:
        yield from table(("", "value"), scalars.items())
        yield ""
    if rows:
        columns = list(dict.fromkeys(column for _, row in rows for column in row))
        if "commit_s p50" in columns:
            columns = [column for column in LIVE if column in columns]
        yield from table(("", *columns), ((key, *(row.get(column, "") for column in columns)) for key, row in rows))
        yield ""
    for key, value in body.items():
        if isinstance(value, dict) and not is_row(value):
            yield from tables(value, f"{title}: {key}" if title else key)


def is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def is_row(value: Mapping[str, Any]) -> bool:
    """Return whether *value* fits one line: numbers and texts, or one level of them (percentiles)."""
    return all(
        not isinstance(item, dict | list)
        or (isinstance(item, dict) and all(not isinstance(deep, dict | list) for deep in item.values()))
        for item in value.values()
    ) and not all(isinstance(item, dict) for item in value.values())


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            found |= {f"{key} {inner}": deep for inner, deep in value.items()}
        elif not isinstance(value, list):
            found[key] = value
    return found


def label(item: Mapping[str, Any]) -> str:
    return next((str(item[key]) for key in ("file", "name", "model", "system") if key in item), "")


def table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell(value) for value in row) + " |"


def cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(cell, value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value).replace("|", "\\|")


def main() -> None:
    results = {path.stem: json.loads(path.read_text()) for path in sorted((HERE / "results").glob("*.json"))}
    (HERE / "README.md").write_text(page(results))
    front = HERE.parent / "README.md"
    front.write_text(front_page(front.read_text(), results))


if __name__ == "__main__":
    main()
