"""Deepgram's dialect: the parts that it gives the server."""

from server.dialects.deepgram.answers import NAME, callback_body
from server.dialects.deepgram.files import FileHandler
from server.dialects.deepgram.grants import Grants
from server.dialects.deepgram.live import ROUTE, LiveHandler
from server.dialects.deepgram.schemas import SCHEMAS
from server.dialects.dialect import Dialect, DialectRoutes
from server.http.middleware import MAX_QUERY_FIELDS
from server.model.bounds import MAX_KEYWORDS
from server.routes.parts import RouteParts


def build(parts: RouteParts) -> DialectRoutes:
    operations = [*FileHandler(parts).operations(), *Grants(parts.keys).operations()]
    return DialectRoutes(operations=operations, sockets=LiveHandler(parts).routes())


DEEPGRAM = Dialect(
    name=NAME,
    summary="The same service for Deepgram's clients",
    build=build,
    schemas=SCHEMAS,
    callback=callback_body,
    query_fields={ROUTE: MAX_QUERY_FIELDS + MAX_KEYWORDS},  # each keyterm is a field
)
