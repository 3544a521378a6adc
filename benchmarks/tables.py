"""The results as tables: python -m benchmarks.tables writes benchmarks/README.md from benchmarks/results/*.json.

No number in that page is typed by hand. Whatever a benchmark writes is shown: numbers of a group as one line of a
table, groups of groups as tables of their own.
"""

import ast
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
HEAD = """# Measured

Made by `python -m benchmarks.tables` from `results/*.json`; each result names its machine, versions and commit. The
machines were shared and busy: compare what stands in one table, not across them.
"""
ABOUT = ("machine", "versions", "commit", "measured_at", "date")


def page() -> str:
    results = sorted((HERE / "results").glob("*.json"))
    return HEAD + "".join(section(path.stem, json.loads(path.read_text())) for path in results)


def section(name: str, result: Mapping[str, Any]) -> str:
    lines = [f"\n## {name}\n", f"{purpose(name)}\n", *about(result), ""]
    body = {key: value for key, value in result.items() if key not in ABOUT}
    return "\n".join([*lines, *tables(body), ""])


def purpose(name: str) -> str:
    """The first sentence of the benchmark's own docstring."""
    source = HERE / f"{name}.py"
    if not source.exists():
        return ""
    return (ast.get_docstring(ast.parse(source.read_text())) or "").partition("\n")[0]


def about(result: Mapping[str, Any]) -> Iterator[str]:
    for key in ABOUT:
        if key in result:
            value = result[key]
            shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
            yield f"- {key}: {shown[:200]}"


def tables(body: Mapping[str, Any], title: str = "") -> Iterator[str]:
    """Scalars as a two-column table, groups of scalars as rows of one table, deeper groups one by one."""
    scalars = {key: value for key, value in body.items() if not isinstance(value, dict | list)}
    rows = {key: flat(value) for key, value in body.items() if isinstance(value, dict) and is_row(value)}
    for key, value in body.items():
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            rows |= {f"{key} {label(item, number)}": flat(item) for number, item in enumerate(value, 1)}
    if title and (scalars or rows):
        yield f"\n### {title}\n"
    if scalars:
        yield from table(("", "value"), ((key, value) for key, value in scalars.items()))
        yield ""
    if rows:
        columns = list(dict.fromkeys(column for row in rows.values() for column in row))
        yield from table(
            ("", *columns), ((key, *(row.get(column, "") for column in columns)) for key, row in rows.items())
        )
        yield ""
    for key, value in body.items():
        if isinstance(value, dict) and not is_row(value):
            yield from tables(value, f"{title}: {key}" if title else key)


def is_row(value: Mapping[str, Any]) -> bool:
    """May it stand in one line: numbers and texts, or one level of them (percentiles)?"""
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


def label(item: Mapping[str, Any], number: int) -> str:
    return str(next((item[key] for key in ("file", "name", "model", "system") if key in item), number))


def table(head: tuple[str, ...], rows: Iterator[tuple[Any, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell(value) for value in row) + " |"


def cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value).replace("|", "\\|")


if __name__ == "__main__":
    (HERE / "README.md").write_text(page())
