"""OpenAI's dialect as the server registers it, with the JSON Schemas of its clients' bodies."""

from collections.abc import Mapping
from typing import Any

from server.dialects.dialect import Dialect, DialectRoutes
from server.dialects.openai.errors import SHAPE
from server.dialects.openai.file_parameters import COMMON, DIARIZED, LOGPROBS, RESPONSE_FORMATS
from server.dialects.openai.files import AudioFiles
from server.dialects.openai.models import Models
from server.dialects.openai.realtime import Realtime
from server.dialects.openai.secrets import ClientSecrets
from server.dialects.openai.translations import RealtimeTranslations
from server.http.codes import CODES
from server.http.schemas import MAYBE_TEXT, SWITCH, TEXT, TEXTS, WHOLE, integer_in, list_of, object_of, ref
from server.parsing.declared import NAMES, REFERENCES
from server.parsing.members import form_properties
from server.requests.request import RouteParts

_FILE: Mapping[str, Any] = {"file": {"type": "string", "format": "binary"}}
_MEMBERS: Mapping[str, Any] = {
    "model": {"type": "string", "examples": ["whisper-1"], "description": "Left out: the server chooses"},
    **form_properties(*COMMON, NAMES, REFERENCES),
    "response_format": {"enum": [*RESPONSE_FORMATS], "default": "json"},
    "temperature": {"type": "number", "minimum": 0, "maximum": 1, "description": "Accepted and not used"},
}

SCHEMAS: Mapping[str, Any] = {
    "OpenAITranscriptionForm": object_of(
        _FILE,
        {
            **_MEMBERS,
            "response_format": {"enum": [*RESPONSE_FORMATS, DIARIZED], "default": "json"},
            "timestamp_granularities[]": {"type": "array", "items": {"enum": ["word", "segment"]}},
            "chunking_strategy": {"type": "string", "description": "Accepted and not used"},
            "include[]": {
                "type": "array",
                "items": {"enum": [LOGPROBS]},
                "description": "logprobs: the log probability of each word, with response_format json",
            },
            "stream": {"type": "boolean", "default": False},
        },
    ),
    "OpenAITranslationForm": object_of(_FILE, _MEMBERS),
    "OpenAIError": object_of(
        {"error": object_of({"message": TEXT, "type": TEXT, "param": MAYBE_TEXT, "code": {"enum": [*CODES]}})}
    ),
    "ClientSecretRequest": object_of(
        {},
        {
            "expires_after": object_of({}, {"anchor": {"const": "created_at"}, "seconds": integer_in(10, 7200, 600)}),
            "session": {"type": "object", "description": "As in session.update; the configuration to begin with"},
        },
    ),
    "ClientSecret": object_of({"value": TEXT, "expires_at": WHOLE, "session": {"type": "object"}}),
    "Model": object_of(
        {
            "id": TEXT,
            "object": {"const": "model"},
            "created": WHOLE,
            "owned_by": TEXT,
            "languages": TEXTS,
            "hears": {**TEXTS, "description": "The languages that it hears where a request names no model"},
            "speakers": {**SWITCH, "description": "Whether speakers can be told apart by their voices: `diarize`"},
            "endpointing": {"type": "array", "items": TEXT, "description": "What may end a turn of a live session"},
            "translates": {**SWITCH, "description": "Whether it writes English where another language is spoken"},
        }
    ),
    "ModelList": list_of(
        ref("Model"),
        object={"const": "list"},
        translates_to={**TEXTS, "description": "The languages of translate_to, as codes; * is any"},
    ),
}


def build(parts: RouteParts) -> DialectRoutes:
    secrets = ClientSecrets(parts)
    translations = RealtimeTranslations(parts, secrets)
    operations = [
        *AudioFiles(parts).operations(),
        *Models(parts.offers).operations(),
        *secrets.operations(),
        *translations.operations(),
    ]
    return DialectRoutes(operations=operations, sockets=[*Realtime(parts, secrets).routes(), *translations.routes()])


OPENAI = Dialect(
    name="openai", summary="The same service for OpenAI's clients", build=build, errors=SHAPE, schemas=SCHEMAS
)
