"""The JSON schema of service_v1, as it is served and as it is tested."""

from importlib.resources import files
from typing import Any

import orjson


def service_v1_schema(public_base: str) -> dict[str, Any]:
    """The schema with the `$id` under which the server at *public_base* (without a slash at its end) serves it."""
    schema: dict[str, Any] = orjson.loads(files(__package__).joinpath("service_v1.json").read_bytes())
    return {**schema, "$id": f"{public_base}/schemas/service_v1.json"}
