"""Writes the tables of settings, plans, routes and error codes: python -m scripts.reference.

Each table stands in a page between the lines "<!-- made by python -m scripts.reference: NAME -->" and "<!-- end -->".
Its texts stand in the code that they describe: the fields of Config, limits.toml, the operations and CODES. A test in
tests/test_docs.py fails while a page differs from the code.
"""

import os
import re
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx

from pipeline.text.address_words import ADDRESS_LANGUAGES
from pipeline.text.languages import NUMERAL_LANGUAGES
from pipeline.text.profanity import SWEAR_LANGUAGES
from scripts.demo import address_of
from server.accounts.plans import BUILT_IN
from server.config import VARIABLES
from server.http.codes import CODES
from server.model.jobs import JOB_CODES

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"server/settings.md": ("settings", "plans"), "server/api.md": ("languages", "routes", "errors", "job errors")}
"""The pages, and the tables in each."""


def settings() -> str:
    rows = ((one.name, one.default and f"`{one.default}`", one.meaning) for one in VARIABLES)
    return _table(("variable", "default", "meaning"), rows)


def plans() -> str:
    """The numbers of every plan by their names in limits.toml, and those of addresses without a key and the sandbox."""
    limits = tomllib.loads(BUILT_IN.read_text(encoding="utf-8"))
    columns = {"without a key": limits["keyless"], **limits["plans"], "sandbox": limits["sandbox"]}
    names = dict.fromkeys(name for plan in limits["plans"].values() for name in plan)
    rows = ((f"`{name}`", *(str(numbers.get(name, "")) for numbers in columns.values())) for name in names)
    return _table(("", *columns), rows)


def languages() -> str:
    """What the text stage knows of which language."""
    rows = (
        ("`numerals`", NUMERAL_LANGUAGES, "refused where the order says the language, else numbers stay as they are"),
        ("`redact` of numbers in words", NUMERAL_LANGUAGES, "figures are hidden, words stay"),
        ("`redact` of figures and written addresses", ("all",), ""),
        ("`redact` of spoken addresses", ADDRESS_LANGUAGES, "the English words; a warning says so"),
        ("`profanity_filter`", SWEAR_LANGUAGES, "the English words"),
        ("`sounds_like`", ("en",), "by letters in place of sounds"),
        ("`replace`, `search`, `paragraphs`", ("all",), ""),
        ("`endpointing=semantic`", ("all",), ""),
        ("`task=translate`", ("all",), ""),
    )
    return _table(("what", "languages", "in others"), ((what, ", ".join(where), rest) for what, where, rest in rows))


def routes(openapi: Mapping[str, Any]) -> str:
    """The operations of the document *openapi*, which a server has at /openapi.json."""
    rows = (
        (f"`{method.upper()} {path}`", _credentials(operation["security"]), operation["summary"])
        for path, operations in openapi["paths"].items()
        for method, operation in operations.items()
    )
    return _table(("route", "key", "what it does"), rows)


def errors() -> str:
    rows = ((str(status), f"`{code}`", title) for code, (status, title) in CODES.items())
    return _table(("status", "code", "title"), sorted(rows))


def job_errors() -> str:
    return textwrap.fill(", ".join(f"`{code}`" for code in JOB_CODES), 120, break_long_words=False)


def tables(openapi: Mapping[str, Any]) -> dict[str, str]:
    """Every table by its name in PAGES."""
    return {
        "settings": settings(),
        "plans": plans(),
        "languages": languages(),
        "routes": routes(openapi),
        "errors": errors(),
        "job errors": job_errors(),
    }


def renewed(page: str, openapi: Mapping[str, Any]) -> str:
    """The text of *page* with its tables made anew. Raises ValueError if the place of one is missing."""
    text, made = (ROOT / page).read_text(encoding="utf-8"), tables(openapi)
    for name in PAGES[page]:
        begin = f"<!-- made by python -m scripts.reference: {name} -->\n"
        if text.count(begin) != 1:
            raise ValueError(f"{page} must have one line {begin!r}")
        head, tail = text.split(begin)
        if "<!-- end -->" not in tail:
            raise ValueError(f"{page}: there is no <!-- end --> after {begin!r}")
        text = head + begin + made[name] + "\n<!-- end -->" + tail.split("<!-- end -->", 1)[1]
    return text


def _credentials(security: list[Mapping[str, object]]) -> str:
    """What a route asks for: a key, a key or a signed link, or nothing."""
    if not security or not any(security):
        return ""
    return "yes" if all(security) else "or link"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = tuple(head)
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(re.sub(r"\|  \|", "| |", f"| {' | '.join(line)} |") for line in lines)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        env = {name: value for name, value in os.environ.items() if not name.startswith("SCRIBEWIRE_")}
        env |= {"SCRIBEWIRE_DATA_DIR": folder, "SCRIBEWIRE_PORT": "0", "SCRIBEWIRE_ENGINE": "scripted"}
        command = [sys.executable, "-m", "server", "serve"]
        server = subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True)
        try:
            openapi = httpx.get(address_of(server) + "/openapi.json").json()
        finally:
            server.terminate()
            server.wait(30)
    for page in PAGES:
        (ROOT / page).write_text(renewed(page, openapi), encoding="utf-8")


if __name__ == "__main__":
    main()
