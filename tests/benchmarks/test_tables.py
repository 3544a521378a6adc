"""Tests of the pages of figures: they are made from the results, with people first."""

import json

import pytest

from benchmarks import highlights, tables
from benchmarks.measure import RESULTS, ROOT

MACHINE = {"cores": 2, "cpu": "Some(R) CPU", "date": "2026-01-01"}


def page_result(speech: str, seconds: float) -> dict[str, object]:
    return {"machine": MACHINE, "model": "m", "speech": speech, "first_text_s": {"p50": seconds}}


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, object]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}


def test_the_pages_say_what_the_results_say(results: dict[str, dict[str, object]]) -> None:
    """If this fails: python -m benchmarks.tables."""
    assert (ROOT / "benchmarks" / "README.md").read_text() == tables.page(results)
    front = (ROOT / "README.md").read_text()
    assert tables.front_page(front, results) == front


def test_every_result_of_made_speech_is_named_so(results: dict[str, dict[str, object]]) -> None:
    made = {name for name, result in results.items() if result.get("speech") == "made"}
    assert made == {name for name in results if name.endswith("-made")}


def test_people_come_first_and_the_small_test_model_under_its_own_heading() -> None:
    page = tables.page({"page": page_result("people", 0.5), "page-made": page_result("made", 0.1)})
    assert page.index("## page\n") < page.index("# The small test model") < page.index("## page-made\n")
    assert "# The small test model" not in tables.page({"page": page_result("people", 0.5)})


def test_the_front_page_tells_of_the_small_test_model_only_where_people_were_not_heard() -> None:
    made, people = page_result("made", 0.1), page_result("people", 0.5)
    [(what, figure, where)] = highlights.rows({"page": people, "page-made": made})
    assert (what, figure) == ("first text on the page after speech began", "0.50 s")
    assert where == "2 cores, Some CPU, 2026-01-01"
    [(what, figure, _)] = highlights.rows({"page-made": made})
    assert (what, figure) == ("first text on the page after speech began (small test model)", "0.10 s")


def test_the_front_page_has_one_figure_of_each_of_its_benchmarks(results: dict[str, dict[str, object]]) -> None:
    front, every = list(highlights.front(results)), list(highlights.rows(results))
    assert len(front) == len(set(highlights.FRONT) & set(results))
    assert set(front) <= set(every)


def test_the_front_page_says_of_eight_people_what_was_measured(results: dict[str, dict[str, object]]) -> None:
    rows = {row["system"]: row["commit_s"] for row in results["peers"]["systems"] if row["sessions"] == 8}  # type: ignore[index,attr-defined]  # any JSON
    ours = rows["scribewire"]
    [repeated] = [row for name, row in rows.items() if name != "scribewire"]
    text = " ".join((ROOT / "README.md").read_text().split())
    assert f"final within {ours['p50']:.1f} s and 95 % within {ours['p95']:.1f} s" in text
    assert f"repeats `transcribe()` needs {repeated['p95']:.0f} s" in text
