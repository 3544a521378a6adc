"""JSON Schemas of what OpenAI's clients send and get."""

from collections.abc import Mapping
from typing import Any

from server.dialects.openai.file_parameters import DIARIZED, RESPONSE_FORMATS
from server.http.codes import CODES
from server.http.schema_parts import (
    CHANNELS_MEMBER,
    FORM_LIST,
    FORM_TEXT,
    KEYWORDS_MEAN,
    MAYBE_TEXT,
    SUBTITLES,
    SWITCH,
    TEXT,
    TEXTS,
    WHOLE,
    integer_in,
    list_of,
    object_of,
    ref,
)
from server.model import bounds

_FILE: Mapping[str, Any] = {
    "file": {"type": "string", "format": "binary"},
    "model": {"type": "string", "examples": ["whisper-1"]},
}
_MEMBERS: Mapping[str, Any] = {
    "prompt": TEXT,
    "keywords": {**FORM_LIST, "examples": ["Siobhan,metoprolol"], "description": KEYWORDS_MEAN},
    "response_format": {"enum": [*RESPONSE_FORMATS], "default": "json"},
    "channels": CHANNELS_MEMBER,
    "temperature": {"type": "number", "minimum": 0, "maximum": 1, "description": "Accepted and not used"},
    "retention": {"enum": [*bounds.RETENTIONS]},
    **FORM_TEXT,
    **SUBTITLES,
}

SCHEMAS: Mapping[str, Any] = {
    "OpenAITranscriptionForm": object_of(
        _FILE,
        {
            **_MEMBERS,
            "response_format": {"enum": [*RESPONSE_FORMATS, DIARIZED], "default": "json"},
            "language": {"type": "string", "description": "Left out: detected"},
            "languages": {**FORM_LIST, "description": "One is the language; of several it is detected"},
            "timestamp_granularities[]": {"type": "array", "items": {"enum": ["word", "segment"]}},
            "chunking_strategy": {"type": "string", "description": "Accepted and not used"},
            "stream": {"type": "boolean", "default": False},
        },
    ),
    "OpenAITranslationForm": object_of(
        _FILE,
        {**_MEMBERS, "language": {"type": "string", "description": "What is spoken; left out: detected"}},
    ),
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
            "speakers": {**SWITCH, "description": "Whether speakers can be told apart by their voices: `diarize`"},
            "translates": {**SWITCH, "description": "Whether it writes English where another language is spoken"},
        }
    ),
    "ModelList": list_of(ref("Model"), object={"const": "list"}),
}
