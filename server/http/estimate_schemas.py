"""JSON Schemas of estimates: what a prompt will cost, before it is run."""

from collections.abc import Mapping
from typing import Any

from server.http.schema_parts import INSTANT, MAYBE_WHOLE, TEXT, list_of, object_of

ESTIMATES: Mapping[str, Any] = {
    "EstimateRequest": object_of(
        {"prompt": {"type": "string", "description": "Neither stored nor logged"}},
        {
            "models": {
                "type": ["array", "null"],
                "items": TEXT,
                "maxItems": 100,
                "description": "Ids or provider/id; left out or empty: the default catalogue",
            },
            "complexity": {"enum": ["low", "medium", "high", None], "default": "medium"},
            "agent_turns": {"type": ["integer", "null"], "minimum": 1, "maximum": 200, "default": 1},
            "cache": {"enum": ["auto", "off", None], "default": "auto"},
            "reasoning": {"enum": ["off", "auto", "high", None], "default": "auto"},
            "output_tokens": {"type": ["integer", "null"], "minimum": 1, "maximum": 10_000_000},
            "system_tokens": {"type": ["integer", "null"], "minimum": 0, "maximum": 10_000_000},
            "priced_at": {"type": ["string", "null"], "format": "date-time"},
            "budget_usd": {"type": ["string", "null"], "pattern": "^[0-9]{1,12}([.][0-9]{1,12})?$"},
        },
    ),
    "Estimate": object_of(
        {
            "object": {"const": "estimate"},
            "id": {"type": "string", "pattern": "^est_[0-9A-Z]{26}$"},
            "created_at": INSTANT,
            "priced_at": INSTANT,
            "currency": {"const": "USD"},
            "inputs": {"type": "object"},
            "price_source": {"type": "object"},
            "models": {
                "type": "array",
                "items": object_of(
                    {
                        "requested_id": TEXT,
                        "status": {"enum": ["priced", "partial", "unpriced", "unknown_model"]},
                        "cost_usd": {"type": ["object", "null"], "description": "low, expected, high: decimal strings"},
                        "multiplied_usd": {"type": ["object", "null"]},
                    }
                ),
            },
            "cheapest": {"type": ["object", "null"]},
            "ranking": {"type": "array", "items": TEXT},
            "ranking_overlaps": {"type": "array"},
            "unknown_models": {"type": "array", "items": TEXT},
            "warnings": {"type": "array", "items": {"type": "object"}},
            "assumptions_version": TEXT,
            "assumptions": {"type": "array", "items": {"type": "object"}},
            "usage": object_of({"remaining": MAYBE_WHOLE, "resets_at": INSTANT}),
        }
    ),
    "EstimateModelList": list_of(
        {"type": "object", "required": ["id", "provider", "cluster"]},
        object={"const": "list"},
        price_source={"type": "object"},
        priced_at=INSTANT,
    ),
}
