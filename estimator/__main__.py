"""The command line of the estimator: python -m estimator "prompt" --models gpt-6.2-sol,claude-haiku-5-5 --turns 5.

`scribewire estimate` is the same command: server/commands/estimate.py calls add_arguments() and run().
"""

import argparse
import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from estimator.answer import Estimator, estimate_id
from estimator.request import CACHES, COMPLEXITIES, MAX_TURNS, MEMBERS, REASONINGS, EstimateError, parse_query

FAILED = 2  # the exit status of argparse too: the caller can correct this


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m estimator", description="Estimate what a prompt will cost.")
    add_arguments(parser)
    return run(parser.parse_args(argv), environ)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `estimate` to *parser*, which may be a subparser."""
    parser.add_argument("prompt", nargs="?", help="the prompt; @FILE reads a file, - or nothing reads standard input")
    parser.add_argument("--models", metavar="A,B", help="model ids, or provider/id (default: the whole catalogue)")
    parser.add_argument(
        "--turns", dest="agent_turns", metavar="N", help=f"calls of the run, 1 to {MAX_TURNS} (default 1)"
    )
    parser.add_argument("--complexity", choices=COMPLEXITIES, help="how long answers get (default medium)")
    parser.add_argument("--cache", choices=CACHES, help="whether the run uses prompt caching (default auto)")
    parser.add_argument("--reasoning", choices=REASONINGS, help="how much reasoning models reason (default auto)")
    parser.add_argument("--output-tokens", metavar="N", help="visible tokens of each answer, instead of the guess")
    parser.add_argument("--system-tokens", metavar="N", help="tokens sent with every call in addition to the prompt")
    parser.add_argument("--priced-at", metavar="TIME", help="use the prices of this time, such as 2026-12-01T00:00:00Z")
    parser.add_argument("--audio-seconds", metavar="S", help="show what hosted transcription takes for that much audio")
    parser.add_argument("--list", action="store_true", help="show the catalogue and its prices; estimate nothing")
    parser.add_argument("--json", action="store_true", help="print what the HTTP interface answers")


def run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Run the command that *args* describe and return its exit status.

    Only the three variables that estimator_from() names are read from *environ*.
    """
    now = datetime.now(UTC)
    try:
        estimator = estimator_from(environ, now=now)
        answer = estimator.models(now=now) if args.list else _estimate(args, estimator, now)
    except (EstimateError, OSError, UnicodeDecodeError) as error:
        said = str(error).rstrip(".")
        named = said.partition(" ")[0].endswith(":")  # a member, which keeps its letters
        print(f"estimate: {said if named else said[:1].upper() + said[1:]}.", file=sys.stderr)
        return FAILED
    if args.json:
        sys.stdout.write(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode() + "\n")
    elif args.list:
        _print_table(_price_table(answer))
    else:
        _print_table(_ranking_table(answer), _footer(answer))
    return 0


def estimator_from(environ: Mapping[str, str], *, now: datetime) -> Estimator:
    """Return an Estimator that uses ESTIMATOR_RANKS_DIR, TIKTOKEN_CACHE_DIR and ESTIMATOR_PRICE_FEED of *environ*.

    Raises BadPriceFeed or OSError if the price file cannot be used.
    """
    ranks, cache = environ.get("ESTIMATOR_RANKS_DIR"), environ.get("TIKTOKEN_CACHE_DIR")
    estimator = Estimator(ranks_dir=Path(ranks) if ranks else None, cache_dir=Path(cache) if cache else None)
    if feed := environ.get("ESTIMATOR_PRICE_FEED"):
        estimator.refresh(Path(feed), now=now)
    return estimator


def _estimate(args: argparse.Namespace, estimator: Estimator, now: datetime) -> dict[str, Any]:
    query = {name: value for name, value in vars(args).items() if name in MEMBERS and value is not None}
    request = parse_query(query, _prompt(args.prompt))
    return estimator.estimate(request, now=now, estimate_id=estimate_id(now, secrets.token_bytes(10)))


def _prompt(given: str | None) -> str:
    if given is None or given == "-":
        return sys.stdin.buffer.read().decode()
    return Path(given[1:]).read_text(encoding="utf-8") if given.startswith("@") else given


def _print_table(table: Table, footer: Iterable[str] = ()) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 140  # a file or pipe has no width; this one holds every column
    console.print(table)
    for line in footer:
        console.print(line, markup=False, soft_wrap=True)


def _table(title: str, headings: Sequence[str], rows: Iterable[Iterable[str]]) -> Table:
    """Return a table whose last column alone may be broken into lines."""
    table = Table(title=title, title_justify="left")
    for heading in headings[:-1]:
        table.add_column(heading, justify="left" if heading in {"model", "cluster"} else "right", no_wrap=True)
    table.add_column(headings[-1], overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _ranking_table(answer: Mapping[str, Any]) -> Table:
    inputs, models = answer["inputs"], answer["models"]
    turns = inputs["agent_turns"]
    title = f"{turns} turn{'s' * (turns > 1)}, {inputs['complexity']} complexity"
    headings = ("#", "model", "cluster", "input", "output", "low", "expected", "high", "times", "notes")
    return _table(title, headings, map(_cells, sorted(models, key=lambda row: row["rank"] or len(models) + 1)))


def _cells(row: Mapping[str, Any]) -> Iterator[str]:
    yield str(row["rank"] or "-")
    yield escape(row["model"] or row["requested_id"])
    yield row["cluster"] or "-"
    for kind in ("input", "output"):
        yield f"{row['tokens'][kind]['expected']:,}" if row["turns_priced"] else "-"
    for bound in ("low", "expected", "high"):
        yield short_usd(row["cost_usd"][bound]) if row["cost_usd"] else "-"
    yield row["times_cheapest"] or "-"
    remarks = [] if row["status"] == "priced" else [row["status"]]
    if guesses := row.get("did_you_mean"):
        remarks.append(f"did you mean {' or '.join(guesses)}?")
    if changes := row["price_changes_on"]:
        remarks.append(f"price changes on {changes}")
    if ends := row["retires_on"]:
        remarks.append(f"ends {ends}, then {row['replaced_by']}" if row["replaced_by"] else f"ends {ends}")
    shown = [note["code"] for note in row["notes"] if note["code"] not in {"retires", "retired"}]
    yield escape(", ".join(remarks + shown))


def _footer(answer: Mapping[str, Any]) -> Iterator[str]:
    source = answer["price_source"]
    yield (
        f"USD at {answer['priced_at']}; {source['name']} {source['version']}, newest price {source['newest_price']}, "
        f"catalogue checked {source['overlay']}."
    )
    yield answer["assumptions"][0]["message"]
    for hosted in answer["hosted_transcription"] or ():
        yield f"hosted transcription: {hosted['model']} {short_usd(hosted['cost_usd'])}"
    for warning in answer["warnings"]:
        yield f"warning: {warning['message']}"


def _price_table(listing: Mapping[str, Any]) -> Table:
    headings = ("model", "cluster", "input", "cached", "output", "window", "above", "input above", "also called")
    return _table("USD per million tokens", headings, map(_price_cells, listing["data"]))


def _price_cells(model: Mapping[str, Any]) -> Iterator[str]:
    yield escape(model["id"])
    yield model["cluster"]
    prices = model["prices"] or {"tiers": []}
    for kind in ("input", "cached_input", "output"):
        yield prices.get(f"{kind}_per_mtok_usd") or "-"
    yield f"{model['context_window']:,}" if model["context_window"] else "-"
    tier = prices["tiers"][0] if prices["tiers"] else None
    yield f"{tier['above_input_tokens']:,}" if tier else "-"
    yield tier["input_per_mtok_usd"] if tier else "-"
    yield escape(", ".join(model["aliases"]))


def short_usd(amount: str) -> str:
    """Return *amount* with at least cents and four significant digits, so that a small price never shows as 0."""
    exact = Decimal(amount)
    decimals = max(2, 3 - exact.adjusted()) if exact else 2
    return f"${exact:,.{decimals}f}"


if __name__ == "__main__":
    sys.exit(main())
