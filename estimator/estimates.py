"""The entry point of the package: turns a request into the whole answer."""

import threading
from collections.abc import Iterator
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from estimator.answer import UNKNOWN, EstimateRow, Json, document, listing, note, price_row, time_text, unknown_row
from estimator.request import EstimateRequest, Fault, UnknownModels
from estimator.tokens import FAMILIES, TextCount, TokenCounter

if TYPE_CHECKING:
    from estimator.catalog import Catalog

MOST_GUESSED = 10
"""The most unknown names of a request for which the nearest ones are looked for: each takes up to 30 ms."""


class Estimator:
    """Makes estimates with the prices and encodings that it has loaded. All methods are thread-safe, and they block.

    The constructor loads nothing. The first estimate, or warm(), loads the price table and an encoding, which takes
    about a second. The environment is not read; settings come as arguments.
    """

    def __init__(self, *, ranks_dir: Path | None = None, cache_dir: Path | None = None, bundled: bool = True) -> None:
        """*ranks_dir*, *cache_dir* and *bundled* say where TokenCounter looks for rank files."""
        self._counter = TokenCounter(ranks_dir=ranks_dir, cache_dir=cache_dir, bundled=bundled)
        self._catalog: Catalog | None = None
        self._loading = threading.Lock()

    def warm(self) -> None:
        """Load everything that the first estimate would load. Raises BadRankFile."""
        self._prices()
        for family in FAMILIES.values():
            self._counter.count("", family.encoding)

    def estimate(self, request: EstimateRequest, *, now: datetime, estimate_id: str) -> Json:
        """Return the answer to *request*, as JSON values. Raises UnknownModels, BadRankFile."""
        catalog, moment = self._prices(), request.priced_at or now
        warnings = list(_warnings(request))
        counts: dict[str, TextCount] = {}
        rows: dict[str, EstimateRow] = {}
        for asked in request.models or [model.name for model in catalog.defaults(moment)]:
            guessing = sum(row.status == UNKNOWN for row in rows.values()) < MOST_GUESSED
            row = self._row(asked, request, catalog, counts, moment, guessing=guessing)
            first = rows.setdefault(row.name or f"?{asked.strip().lower()}", row)
            if first is not row:
                message = f"{asked!a} names the same model as {first.requested!a}: one row for both."
                warnings.append(note("duplicate_model", message, "models"))
        if all(row.problem for row in rows.values()):
            raise UnknownModels(
                Fault("models", f"/models/{index}", row.status, f"models: {row.problem}")
                for index, row in enumerate(rows.values())
            )
        if not all(count.exact for count in counts.values()):
            message = "No rank file on this machine: tokens are guessed from characters."
            warnings.append(note("heuristic_tokens", message))
        return {
            "object": "estimate",
            "id": estimate_id,
            "created_at": time_text(now),
            **document(
                request,
                list(rows.values()),
                warnings=warnings,
                source=catalog.source,
                hosted=catalog.hosted_transcription(moment) if request.audio_seconds else (),
                moment=moment,
            ),
        }

    def _row(
        self,
        asked: str,
        request: EstimateRequest,
        catalog: "Catalog",
        counts: dict[str, TextCount],
        moment: datetime,
        *,
        guessing: bool,
    ) -> EstimateRow:
        """Return the row of the model *asked* for. *counts* has the prompt's tokens by encoding, and is added to.

        *guessing*: whether to look for the nearest names if no model is called so.
        """
        model = catalog.find(asked)
        if model is None:
            return unknown_row(asked, catalog.suggest(asked) if guessing else [])
        encoding = FAMILIES[model.family].encoding
        if encoding not in counts:
            counts[encoding] = self._counter.count(request.prompt, encoding)
        return price_row(asked, model, request, counts[encoding], moment)

    def models(self, *, now: datetime) -> Json:
        """Return the default catalogue, as JSON values."""
        catalog = self._prices()
        return listing(catalog.defaults(now), catalog.source, now)

    def refresh(self, feed: Path, *, now: datetime) -> None:
        """Use the prices of the file *feed* from the next estimate on.

        Raises BadPriceFeed or OSError; the prices then stay as they were.
        """
        from estimator.catalog import catalog_from_feed  # noqa: PLC0415  costs a second to import

        self._catalog = catalog_from_feed(_overlay(), feed.read_bytes(), moment=now)

    def _prices(self) -> "Catalog":
        with self._loading:
            if self._catalog is None:
                from estimator.catalog import bundled_catalog  # noqa: PLC0415  costs a second to import

                self._catalog = bundled_catalog(_overlay())
            return self._catalog


def _warnings(request: EstimateRequest) -> Iterator[Json]:
    for name in request.unknown_members:
        yield note("unknown_parameter", f"{name} is not known and was ignored.", name)
    if not request.prompt:
        yield note("empty_prompt", "The prompt is empty: only framing is sent.", "prompt")


def _overlay() -> str:
    return resources.files("estimator").joinpath("catalog.toml").read_text(encoding="utf-8")
