"""OpenAI's dialect: the parts that it gives the server."""

from server.dialects.dialect import Dialect, DialectParts, DialectRoutes
from server.dialects.openai.files import AudioFiles
from server.dialects.openai.models import Models
from server.dialects.openai.realtime import Realtime
from server.dialects.openai.schemas import SCHEMAS
from server.dialects.openai.secrets import ClientSecrets


def build(parts: DialectParts) -> DialectRoutes:
    files = AudioFiles(parts.shared, parts.transcriptions)
    secrets = ClientSecrets(parts.shared)
    realtime = Realtime(parts.shared, secrets, parts.session_opener)
    operations = [*files.operations(), *Models(parts.shared.offers).operations(), *secrets.operations()]
    return DialectRoutes(operations=operations, sockets=realtime.routes())


OPENAI = Dialect(name="openai", summary="The same service for OpenAI's clients", build=build, schemas=SCHEMAS)
