"""The JSON schema of service_v1. The server serves it, and tests check outputs against it."""

from importlib.resources import files
from typing import Any

import orjson


def service_v1_schema(public_base: str) -> dict[str, Any]:
    """Return the schema with the `$id` under which the server at *public_base* (without a final slash) serves it."""
    schema: dict[str, Any] = orjson.loads(files(__package__).joinpath("service_v1.json").read_bytes())
    return {**schema, "$id": f"{public_base}/schemas/service_v1.json"}
