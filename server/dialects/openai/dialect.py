"""OpenAI's dialect: the parts that it gives the server."""

from server.dialects.dialect import Dialect, DialectRoutes
from server.dialects.openai.files import AudioFiles
from server.dialects.openai.models import Models
from server.dialects.openai.realtime import Realtime
from server.dialects.openai.schemas import SCHEMAS
from server.dialects.openai.secrets import ClientSecrets
from server.routes.parts import RouteParts


def build(parts: RouteParts) -> DialectRoutes:
    secrets = ClientSecrets(parts)
    operations = [*AudioFiles(parts).operations(), *Models(parts.offers).operations(), *secrets.operations()]
    return DialectRoutes(operations=operations, sockets=Realtime(parts, secrets).routes())


OPENAI = Dialect(name="openai", summary="The same service for OpenAI's clients", build=build, schemas=SCHEMAS)
