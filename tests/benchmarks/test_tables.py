"""Tests of the pages of figures: every table can be made, and every command in them exists with its options."""

import re
from pathlib import Path

import pytest

from benchmarks import tables
from benchmarks.tables import IN_SHORT, PAGES, TABLES, with_tables

HERE = PAGES[0].parent
COMMANDS = sorted(set(re.findall(r"python -m benchmarks\.(\w+)([^`#\n]*)", PAGES[0].read_text())))


def test_every_table_is_on_a_page_and_the_front_page_has_few_figures():
    pages = "".join(page.read_text() for page in PAGES)
    assert set(re.findall("<!-- ([a-z ]+) -->", pages)) - {"end"} == set(TABLES)
    assert len(IN_SHORT) == 3


def test_a_table_takes_the_place_of_an_older_one_and_nothing_else_changes():
    made = with_tables("before\n<!-- crowd -->\nold\n<!-- end -->\nafter\n")
    assert made.startswith("before\n<!-- crowd -->\n| sessions | nodes | server |")
    assert made.endswith(".\n<!-- end -->\nafter\n")
    assert "old" not in made
    assert with_tables(made) == made


@pytest.mark.parametrize(("module", "options"), COMMANDS)
def test_every_command_on_the_page_is_a_benchmark_with_these_options(module, options):
    source = "".join(Path(HERE / f"{name}.py").read_text() for name in (module, "choices"))
    assert 'if __name__ == "__main__":' in source
    assert all(f'"{option}"' in source for option in re.findall("--[a-z-]+", options))


def test_figures_of_two_machines_never_stand_below_the_label_of_one(monkeypatch):
    head, template, rows, _ = TABLES["floods"]
    monkeypatch.setitem(tables.TABLES, "floods", (head, template, rows, {"": "floods"}))
    with pytest.raises(ValueError, match="another machine"):
        with_tables("<!-- floods -->\nold\n<!-- end -->\n")
