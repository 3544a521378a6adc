"""The configuration of a transcription session in OpenAI's realtime API, and the order that it stands for.

The configuration is kept in the form that clients get, because the openai package recognises a transcription session
only if every member has a value that OpenAI's server could have sent. Source:
platform.openai.com/docs/api-reference/realtime.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from pipeline.recognition.stream_options import ACCURATE, LOW
from pipeline.text.options import TextOptions
from server.dialects.openai.errors import invalid_value, unknown_model
from server.model import bounds
from server.model.offers import Offer
from server.model.orders import SEMANTIC, LiveOptions, Order
from server.parsing.declared import PROMPT
from server.parsing.members import Members, keywords, one_of, string
from server.parsing.text import LANGUAGE, LANGUAGES, Spoken, spoken_languages

TYPE = "transcription"
FORMATS = {
    "audio/pcm": ("pcm_s16le", 24_000),
    "audio/pcmu": ("mulaw", bounds.TELEPHONE_RATE),
    "audio/pcma": ("alaw", bounds.TELEPHONE_RATE),
}
"""By OpenAI's name of a format: our encoding and the rate. OpenAI's API has no other rates."""
VAD_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "server_vad": {"threshold": 0.5, "prefix_padding_ms": 300, "silence_duration_ms": 500},
    "semantic_vad": {"eagerness": "auto"},
}
EAGERNESS_MS = {"low": 1200, "medium": 600, "auto": 600, "high": 300}
"""The silence that ends a turn if the server has no model for the ends of turns."""
DELAYS = {"minimal": LOW, "low": LOW, "medium": None, "high": ACCURATE, "xhigh": ACCURATE}
"""OpenAI's delays and our latencies. None: the latency in the server's settings."""
MAX_BYTES = 16 * 1024
"""The most bytes of a configuration, as JSON. The longest prompt and keywords take half of it."""
NO_REDACTION = "realtime sessions redact nothing; /v1/live and /v1/transcribe are other ways"


@dataclass(frozen=True, slots=True)
class TranscriptionConfig:
    """The configuration of a session. The mappings are as clients see them."""

    format: str = "audio/pcm"
    noise_reduction: Mapping[str, Any] | None = None  # has no effect
    transcription: Mapping[str, Any] = field(default_factory=dict)
    turn_detection: Mapping[str, Any] | None = field(
        default_factory=lambda: {"type": "server_vad", **VAD_DEFAULTS["server_vad"]}
    )  # None: items end when the client commits them
    model: str | None = None  # the one that hears everything; None: the server chooses
    spoken: Spoken = field(default_factory=Spoken)
    terms: tuple[str, ...] = ()
    warnings: tuple[Mapping[str, str], ...] = ()  # for the jobs of its sessions

    @property
    def manual(self) -> bool:
        """Whether items end only when the client commits them."""
        return self.turn_detection is None

    @property
    def semantic(self) -> bool:
        """Whether items end with the speaker's turns."""
        return self.turn_detection is not None and self.turn_detection["type"] == "semantic_vad"

    @property
    def rate(self) -> int:
        """Bytes of audio a second."""
        encoding, rate = FORMATS[self.format]
        return 2 * rate if encoding == "pcm_s16le" else rate

    def with_changes(self, session: Mapping[str, Any], offer: Offer) -> "TranscriptionConfig":
        """The configuration after the changes in *session*. A missing member changes nothing; null resets a member.

        Raises Refused model_not_found, invalid_parameter.
        """
        if session.get("type", TYPE) != TYPE:
            raise invalid_value("session.type", "only transcription sessions are offered here")
        given = _inner(_inner(session, "audio"), "input")
        _refuse_redaction(session)
        made = self
        if given.get("format") is not None:
            made = replace(made, format=_format(_inner(given, "format")))
        if "noise_reduction" in given:
            made = replace(made, noise_reduction=given["noise_reduction"] and dict(_inner(given, "noise_reduction")))
        if "turn_detection" in given:
            made = replace(made, turn_detection=_turn_detection(given["turn_detection"]))
        if given.get("transcription") is not None:
            made = _with_transcription(made, _inner(given, "transcription"), offer)
        _check_size(made)
        return made

    def order(self) -> Order:
        """The order of a live session with this configuration."""
        encoding, rate = FORMATS[self.format]
        live = LiveOptions(
            encoding=encoding,
            sample_rate=rate,
            interim_results=False,
            endpointing_ms=_silence_ms(self.turn_detection),
            ends_at_once=not self.semantic,
            latency=DELAYS.get(self.transcription.get("delay") or "medium"),
        )
        if self.turn_detection is not None and self.semantic:
            live = replace(live, endpointing=SEMANTIC, eagerness=self.turn_detection["eagerness"])
        return Order(
            word_timestamps=True,
            model=self.model,
            language=self.spoken.language,
            languages=self.spoken.languages,
            prompt=str(self.transcription.get("prompt") or ""),
            keywords=self.terms,
            live=live,
            text=TextOptions(script=self.spoken.script),
        )

    def session_object(self, session_id: str, *, expires_s: int) -> Mapping[str, Any]:
        """The session object that clients get."""
        shape = {"type": self.format, "rate": FORMATS[self.format][1]} if self.format == "audio/pcm" else None
        return {
            "id": session_id,
            "object": "realtime.transcription_session",
            "type": TYPE,
            "expires_at": expires_s,
            "include": [],
            "audio": {
                "input": {
                    "format": shape or {"type": self.format},
                    "noise_reduction": self.noise_reduction,
                    "transcription": {"prompt": "", **self.transcription},
                    "turn_detection": self.turn_detection,
                }
            },
        }


def _with_transcription(before: TranscriptionConfig, given: Mapping[str, Any], offer: Offer) -> TranscriptionConfig:
    kept = dict(before.transcription)
    if given.get(LANGUAGE.name) or given.get(LANGUAGES.name):
        kept = {name: value for name, value in kept.items() if name not in {LANGUAGE.name, LANGUAGES.name}}
    asked = {**kept, **given}
    members = Members({name: [value] for name, value in asked.items()})
    name = members.take("model", string, None)
    if name is not None and not offer.has(name):
        raise unknown_model(name, offer)
    model = None if name is None else offer.model_named(name)
    offer = offer.of(model)
    prompt, warnings = members.get(PROMPT), members.shortened_prompt(PROMPT)
    if prompt:
        asked["prompt"] = prompt  # clients see what is used
    spoken = spoken_languages(members, offer)
    terms = members.take("keywords", keywords, ())
    members.take("delay", one_of(tuple(DELAYS)), None)
    members.check()
    if given.get("prompt") is None:
        warnings = before.warnings
    return replace(before, transcription=asked, model=model, spoken=spoken, terms=terms, warnings=warnings)


def _refuse_redaction(session: Mapping[str, Any]) -> None:
    """Raise Refused if *session* asks for redaction anywhere, because the client would believe that text is hidden."""
    waiting: list[Any] = [session]
    while waiting:
        given = waiting.pop()
        if isinstance(given, Mapping):
            if given.get("redact"):
                raise invalid_value("session.redact", NO_REDACTION)
            waiting += given.values()
        elif isinstance(given, list):
            waiting += given


def _check_size(made: TranscriptionConfig) -> None:
    """Raise Refused if the configuration is larger than MAX_BYTES."""
    try:
        size = len(orjson.dumps([made.transcription, made.noise_reduction]))
    except orjson.JSONEncodeError:  # nested too deeply
        size = MAX_BYTES + 1
    if size > MAX_BYTES:
        raise invalid_value("session", f"must have at most {MAX_BYTES} bytes, and few levels")


def _inner(outer: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = outer.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid_value(name, "must be an object")
    return value


def _format(given: Mapping[str, Any]) -> str:
    name = given.get("type")
    if not isinstance(name, str) or name not in FORMATS:
        raise invalid_value("session.audio.input.format", f"must be one of {', '.join(FORMATS)}")
    if given.get("rate", FORMATS[name][1]) != FORMATS[name][1]:
        raise invalid_value("session.audio.input.format.rate", f"must be {FORMATS[name][1]} for {name}")
    return name


def _turn_detection(given: object) -> Mapping[str, Any] | None:
    """The member turn_detection, with OpenAI's defaults for missing members, and without unknown ones."""
    if given is None:
        return None
    kind = given.get("type", "server_vad") if isinstance(given, dict) else None
    if not isinstance(kind, str) or kind not in VAD_DEFAULTS or not isinstance(given, dict):
        raise invalid_value(
            "session.audio.input.turn_detection", f"must be null or of type {' or '.join(VAD_DEFAULTS)}"
        )
    known = {name: usual if given.get(name) is None else given[name] for name, usual in VAD_DEFAULTS[kind].items()}
    for name, value in known.items():
        if name == "eagerness":
            sound = isinstance(value, str) and value in EAGERNESS_MS
        else:
            sound = isinstance(value, int | float) and value >= 0
        if not sound:
            raise invalid_value(f"session.audio.input.turn_detection.{name}", "has a value that it cannot have")
    return {"type": kind, **known}


def _silence_ms(turn_detection: Mapping[str, Any] | None) -> int:
    """The silence that ends a turn, within the bounds of live sessions."""
    if turn_detection is None:
        return LiveOptions().endpointing_ms
    if turn_detection["type"] == "semantic_vad":
        return EAGERNESS_MS[turn_detection["eagerness"]]
    asked_ms = round(float(turn_detection["silence_duration_ms"]))
    return max(bounds.ENDPOINTING_MS[0], min(bounds.ENDPOINTING_MS[-1], asked_ms))
