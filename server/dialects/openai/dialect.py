"""OpenAI's dialect: the parts that it gives the server."""

from server.dialects.dialect import Dialect, DialectParts, DialectRoutes
from server.dialects.openai.files import AudioFiles
from server.dialects.openai.models import Models
from server.dialects.openai.realtime import Realtime
from server.dialects.openai.schemas import SCHEMAS
from server.dialects.openai.secrets import ClientSecrets


def build(parts: DialectParts) -> DialectRoutes:
    files = AudioFiles(
        transcriptions=parts.transcriptions,
        waiter=parts.waiter,
        jobs=parts.jobs,
        blobs=parts.blobs,
        following=parts.following,
        eraser=parts.eraser,
        quiet_s=parts.quiet_s,
        offers=parts.offers,
    )
    secrets = ClientSecrets(door=parts.door, keys=parts.keys, offers=parts.offers)
    realtime = Realtime(
        door=parts.door,
        secrets=secrets,
        stream_limits=parts.stream_limits,
        session_opener=parts.session_opener,
        offers=parts.offers,
        metrics=parts.metrics,
    )
    operations = [*files.operations(), *Models(parts.offers).operations(), *secrets.operations()]
    return DialectRoutes(operations=operations, sockets=realtime.routes())


OPENAI = Dialect(name="openai", summary="The same service for OpenAI's clients", build=build, schemas=SCHEMAS)
