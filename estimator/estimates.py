"""The entry point of the package: turns a request into the whole answer."""

import threading
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from estimator.families import FAMILIES, TextCount
from estimator.request import EstimateRequest, Fault, UnknownModels
from estimator.result import document, listing
from estimator.row import Json, Row, known_row, note, unknown_row
from estimator.tokens import TokenCounter

if TYPE_CHECKING:
    from estimator.catalog import Catalog


class Estimator:
    """Holds the prices and the encodings, and makes estimates. All methods are thread-safe, and they block.

    The constructor loads nothing. The first estimate, or warm(), loads the price table and an encoding, which takes
    about a second. The environment is not read; settings come as arguments.
    """

    def __init__(self, *, ranks_dir: Path | None = None, cache_dir: Path | None = None) -> None:
        """*ranks_dir* and *cache_dir* are the folders in which TokenCounter looks for rank files first."""
        self._counter = TokenCounter(ranks_dir=ranks_dir, cache_dir=cache_dir)
        self._catalog: Catalog | None = None
        self._loading = threading.Lock()

    def warm(self) -> None:
        """Load everything that the first estimate would load. Raises BadRankFile."""
        self._prices()
        for family in FAMILIES.values():
            self._counter.count("", family.encoding)

    def estimate(self, request: EstimateRequest, *, now: datetime, estimate_id: str) -> Json:
        """Return the answer to *request*, as JSON values. Raises UnknownModels, BadRankFile."""
        return estimate(request, self._prices(), self._counter, now=now, estimate_id=estimate_id)

    def models(self, *, now: datetime) -> Json:
        """Return the default catalogue, as JSON values."""
        catalog = self._prices()
        return listing(catalog.defaults, catalog.source, now)

    def refresh(self, feed: Path, *, now: datetime) -> None:
        """Use the prices of the file *feed* from the next estimate on.

        Raises BadPriceFeed or OSError; the prices then stay as they were.
        """
        from estimator.catalog import catalog_from_feed  # noqa: PLC0415  costs a second to import

        before = self._prices()
        self._catalog = catalog_from_feed(_overlay(), feed.read_bytes(), before=before, moment=now)

    def _prices(self) -> "Catalog":
        with self._loading:
            if self._catalog is None:
                from estimator.catalog import bundled_catalog  # noqa: PLC0415  costs a second to import

                self._catalog = bundled_catalog(_overlay())
            return self._catalog


def estimate(
    request: EstimateRequest, catalog: "Catalog", counter: TokenCounter, *, now: datetime, estimate_id: str
) -> Json:
    """Return the answer to *request* by *catalog* and *counter*. Raises UnknownModels, BadRankFile."""
    moment = request.priced_at or now
    warnings = [
        note("unknown_parameter", f"{name} is not known and was ignored.", name) for name in request.unknown_members
    ]
    if not request.prompt:
        warnings.append(note("empty_prompt", "The prompt is empty: only framing is sent.", "prompt"))
    counts: dict[str, TextCount] = {}
    rows: dict[str, Row] = {}
    for asked in request.models or [model.name for model in catalog.defaults]:
        if (model := catalog.find(asked)) is None:
            row = unknown_row(asked, catalog.suggest(asked))
        else:
            encoding = FAMILIES[model.family].encoding
            if encoding not in counts:
                counts[encoding] = counter.count(request.prompt, encoding)
            row = known_row(asked, model, request, counts[encoding], moment)
        name = row.name or f"?{asked.strip().lower()}"
        if name in rows:
            message = f"{asked!a} names the same model as {rows[name].requested!a}: one row for both."
            warnings.append(note("duplicate_model", message, "models"))
        else:
            rows[name] = row
    found = list(rows.values())
    if all(row.problem for row in found):
        raise UnknownModels(
            [
                Fault("models", f"/models/{index}", row.status, f"models: {row.problem}")
                for index, row in enumerate(found)
            ]
        )
    if any(not count.exact for count in counts.values()):
        warnings.append(note("heuristic_tokens", "No rank file on this machine: tokens are guessed from characters."))
    return document(
        request,
        found,
        warnings,
        catalog.source,
        estimate_id=estimate_id,
        created_at=now,
        priced_at=moment,
    )


def _overlay() -> str:
    return resources.files("estimator").joinpath("catalog.toml").read_text(encoding="utf-8")
