"""Writes the tables of the reference, of settings and of plans: python -m scripts.reference.

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

from pipeline.text.addresses import ADDRESS_LANGUAGES
from pipeline.text.languages import NUMERAL_LANGUAGES
from pipeline.text.profanity import SWEAR_LANGUAGES
from scripts.demo import address_of
from server.accounts.limits import BUILT_IN
from server.config import VARIABLES
from server.http.bodies import MAX_FIELD_BYTES, MAX_FIELDS
from server.http.middleware import EXPOSING, MAX_QUERY_FIELDS
from server.http.problems import CODES, Problem
from server.http.sockets import MAX_MESSAGE_BYTES, close_code
from server.jobs.correcting import MAX_CHANGES
from server.metrics import Metrics
from server.model import bounds
from server.model.deliveries import MAX_PENDING_PER_ACCOUNT, MAX_PENDING_PER_URL
from server.model.events import EVENTS, WARNINGS
from server.model.jobs import JOB_CODES
from server.parsing.declared import FILE_MEMBERS, LIVE_MEMBERS
from server.parsing.members import Member
from server.records.records import DOWNLOAD_TTL_S, MAX_TTL_S, WEBHOOK_TTL_S
from server.storage.sql.jobs import MAX_QUEUED
from server.storage.sql.leases import MAX_ATTEMPTS
from server.transport.http_server import MAX_HEAD_BYTES, MAX_HEADERS, MAX_PATH_BYTES, MAX_PIPELINED, MAX_TARGET_BYTES

OURS = 4000  # what is added to an HTTP status to make a close code
ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "server/settings.md": ("settings", "plans"),
    "server/api.md": ("languages",),
    "server/reference.md": (
        "routes",
        "fields",
        "files",
        "live",
        "events",
        "warnings",
        "errors",
        "job errors",
        "close codes",
        "headers",
        "limits",
        "metrics",
    ),
}
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
        ("`numerals`", NUMERAL_LANGUAGES, "refused if the request names the language, else numbers stay as they are"),
        ("`redact` of numbers in words", NUMERAL_LANGUAGES, "figures are hidden, words stay"),
        ("`redact` of figures and written addresses", ("all",), ""),
        ("`redact` of spoken addresses", ADDRESS_LANGUAGES, "the English words, with a warning"),
        ("`profanity_filter`", SWEAR_LANGUAGES, "the English words"),
        ("`sounds_like`", ("en",), "by letters instead of sounds"),
        ("`replace`, `search`, `paragraphs`, `endpointing=semantic`, `task=translate`", ("all",), ""),
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


def members(declared: Iterable[Member[Any]]) -> str:
    """The fields of a request, with what they take and their defaults."""
    rows = (
        (f"`{one.name}`", _kind(one.parse.schema), _default(one.default), _one_line(one.meaning))
        for one in {member.name: member for member in declared}.values()
    )
    return _table(("field", "takes", "default", "effect"), rows)


def _kind(schema: Mapping[str, Any]) -> str:
    """What a JSON Schema takes, in few words."""
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type", "any")
    kind = " or ".join(kind) if isinstance(kind, list) else kind
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    least, most = schema.get("minimum"), schema.get("maximum")
    bounds = "" if least is None else f", from {least}" if most is None else f", {least} to {most}"
    if "maxLength" in schema:
        return f"text, up to {schema['maxLength']:,} characters"
    return {"string": "text", "boolean": "true or false", "object": "JSON object"}.get(kind, kind) + bounds


def _default(value: object) -> str:
    if value in (None, "", (), [], {}):
        return ""
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return f"`{text.lower() if isinstance(value, bool) else text}`"


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def events() -> str:
    rows = ((f"`{name}`", "yes" if numbered else "no", meaning) for name, (numbered, meaning) in EVENTS.items())
    return _table(("event", "numbered", "what it says"), rows)


def warnings() -> str:
    return _table(("warning", "what it says"), ((f"`{code}`", meaning) for code, meaning in WARNINGS.items()))


def close_codes() -> str:
    """The close codes of our own WebSockets that are not OURS plus an HTTP status, and the errors behind them."""
    by_code: dict[int, list[str]] = {}
    for code in CODES:
        by_code.setdefault(close_code(Problem(code, "")), []).append(f"`{code}`")
    usual = {
        1000: "the session is over",
        1001: "the server stops: connect again",
        1009: "a message is too big",
        1011: "the server failed",
        1013: "no room now: try again later",
    }
    assert all(code in usual or OURS <= code < OURS + 600 for code in by_code)
    rows = [(str(code), meaning, ", ".join(by_code.get(code, ()))) for code, meaning in usual.items()]
    return _table(("close code", "why", "error"), rows)


def headers() -> str:
    return _wrapped(name.strip() for name in EXPOSING["Access-Control-Expose-Headers"].split(","))


def limits() -> str:
    """Limits that belong to no plan, with the numbers of the code."""
    rows = (
        ("members of a JSON body, fields of a form", f"{MAX_FIELDS}"),
        ("bytes of one field", f"{MAX_FIELD_BYTES:,}"),
        ("`metadata`", f"{bounds.MAX_METADATA_KEYS} keys, {bounds.MAX_METADATA_CHARS} characters each"),
        ("`prompt`", f"its last {bounds.MAX_PROMPT_CHARS:,} characters"),
        ("`keywords`", f"{bounds.MAX_KEYWORDS_CHARS:,} characters together"),
        ("addresses", f"{bounds.MAX_URL_CHARS:,} characters"),
        ("name of a channel", f"{bounds.MAX_CHANNEL_CHARS} characters"),
        ("path of a request", f"{MAX_PATH_BYTES:,} bytes; with its query {MAX_TARGET_BYTES:,}"),
        ("head of a request", f"{MAX_HEADERS} headers, {MAX_HEAD_BYTES:,} bytes"),
        ("fields of a query", f"{MAX_QUERY_FIELDS}"),
        ("a message of live audio", f"{MAX_MESSAGE_BYTES:,} bytes"),
        ("requests that wait on one connection", f"{MAX_PIPELINED}"),
        ("jobs that wait in the queue", f"{MAX_QUEUED:,}"),
        ("attempts of a job", f"{MAX_ATTEMPTS}; one that got further than the last does not count"),
        ("changes of one correction", f"{MAX_CHANGES:,}"),
        (
            "download links",
            (
                f"{DOWNLOAD_TTL_S // 3600} h, in webhooks {WEBHOOK_TTL_S // 3600} h, "
                f"up to {MAX_TTL_S // 86400} days by `url_ttl`"
            ),
        ),
        ("deliveries that wait", f"{MAX_PENDING_PER_URL:,} to one address, {MAX_PENDING_PER_ACCOUNT:,} of an account"),
    )
    return _table(("what", "limit"), rows)


def metrics() -> str:
    """The metrics of /metrics, by their names there."""
    found = []
    for family in Metrics().registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found.append((f"`{name}`", family.documentation))
    return _table(("metric", "what it says"), sorted(found))


def errors() -> str:
    """The error codes of each HTTP status. A title stands beside its code if it says more, in two words at least."""
    by_status: dict[int, list[str]] = {}
    for code, (status, title) in sorted(CODES.items()):
        says_more = len({word for word in title.lower().split() if len(word) > 3} - set(code.split("_"))) > 1
        by_status.setdefault(status, []).append(f"`{code}`" + f" ({title})" * says_more)
    return _table(("status", "codes"), ((str(status), ", ".join(by_status[status])) for status in sorted(by_status)))


def job_errors() -> str:
    return _wrapped(JOB_CODES)


def _wrapped(names: Iterable[str]) -> str:
    return textwrap.fill(", ".join(f"`{name}`" for name in names), 120, break_long_words=False, break_on_hyphens=False)


def tables(openapi: Mapping[str, Any]) -> dict[str, str]:
    """Every table by its name in PAGES."""
    return {
        "settings": settings(),
        "plans": plans(),
        "languages": languages(),
        "routes": routes(openapi),
        "fields": members(one for one in FILE_MEMBERS if one in LIVE_MEMBERS),
        "files": members(one for one in FILE_MEMBERS if one not in LIVE_MEMBERS),
        "live": members(one for one in LIVE_MEMBERS if one not in FILE_MEMBERS),
        "events": events(),
        "warnings": warnings(),
        "errors": errors(),
        "job errors": job_errors(),
        "close codes": close_codes(),
        "headers": headers(),
        "limits": limits(),
        "metrics": metrics(),
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
