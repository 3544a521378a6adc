"""Parses the query of Deepgram's /v1/listen, for live audio and for files, into an order.

Parameters without effect here are accepted with a warning. A redaction that this server cannot do is refused, because
its client would believe that something is hidden. Source: developers.deepgram.com/reference.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.datastructures import QueryParams

from pipeline.ingest.input_formats import CHANNELS, RATES, SEPARATE, SEPARATE_CHANNELS, RawAudio, TrackChoice
from pipeline.speakers.options import NOT_INSTALLED
from pipeline.text.options import REDACTIONS
from server.dialects.deepgram.answers import DeepgramShape
from server.model import bounds
from server.model.errors import Refused, invalid_member
from server.model.offers import Offer
from server.model.orders import CONTAINER, SEMANTIC, LiveOptions, Order
from server.parsing.declared import EAGERNESS, TRACK
from server.parsing.members import InvalidValue, Members, boolean, keywords, plain_name, url_text
from server.parsing.orders import live_track, raw_audio, refuse_both, unknown_members
from server.parsing.text import LANGUAGES, PARAGRAPHS, TEXT_MEMBERS, Spoken, spoken_languages, text_options

RAW = {"linear16": "pcm_s16le", "linear32": "pcm_f32le", "mulaw": "mulaw", "alaw": "alaw"}
FILES = ("ogg-opus", "flac")  # containers, like all audio whose encoding is not named
MIN_UTTERANCE_END_MS = 1000
DETECT_LANGUAGE, LANGUAGE_HINT = "detect_language", "language_hint"
DIARIZE_MODEL = "diarize_model"  # asks for speakers too, whatever model it names
COMMON = frozenset(
    (
        "model",
        "language",
        LANGUAGES.name,
        DETECT_LANGUAGE,
        LANGUAGE_HINT,
        "keyterm",
        "keywords",
        "punctuate",
        "smart_format",
        "multichannel",
        "diarize",
        DIARIZE_MODEL,
        "callback",
        *(member.name for member in TEXT_MEMBERS if member is not PARAGRAPHS),
    )
)
LIVE = COMMON | {
    "encoding",
    "sample_rate",
    "channels",
    "interim_results",
    "endpointing",
    "eagerness",
    "utterance_end_ms",
    "vad_events",
    "token",  # of our own
    TRACK.name,  # of our own
}
FILE = COMMON | {
    "paragraphs",
    "utterances",
    "callback_method",
    "channels",
    "encoding",
    "sample_rate",
    TRACK.name,  # of our own
}
HARMLESS = frozenset(("version", "mip_opt_out", "no_delay"))
"""Members that are ignored without a warning, because they cannot change the text."""
MODELS = re.compile(
    r"((nova|flux|enhanced|base|whisper|2)(-[\w-]+)?|general|meeting|phonecall|voicemail|finance|conversationalai|video"
    r"|medical|drivethru|automotive)(:[\w-]+)?",
    re.ASCII,
)
"""Deepgram's names of models, such as nova-3 and enhanced-meeting."""

REDACT = "redact"
REDACT_NAMES: Mapping[str, tuple[str, ...]] = {
    **{name: (name,) for name in REDACTIONS},
    "true": ("pci", "ssn", "numbers"),
    "false": (),
    "credit_card": ("pci",),
    "email_address": ("email",),
    "aggressive_numbers": ("numbers",),
}
"""Deepgram's names of the kinds of redaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRequest:
    """A request for live audio."""

    order: Order
    warnings: tuple[Mapping[str, str], ...] = ()
    punctuated: bool = False
    interim: bool = False
    speech_events: bool = False
    ends_speech: bool = True  # whether pauses set speech_final
    utterance_end_ms: int | None = None  # the silence after which UtteranceEnd is sent; None: it is not


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRequest:
    """A request for a file or an address."""

    order: Order
    shape: DeepgramShape
    warnings: tuple[Mapping[str, str], ...] = ()
    callback: str | None = None  # where to send the answer


def parse_live(query: QueryParams, offer: Offer) -> LiveRequest:
    """Parse the query of a live request. Raises Refused invalid_parameter."""
    members = _members(query)
    interim = members.take("interim_results", boolean, False)
    utterance_end_ms = members.take("utterance_end_ms", _number, None)
    _check_utterance_end(utterance_end_ms, members, interim=interim)
    ends_speech, endpointing = members.take("endpointing", _endpointing, (True, {}))
    if endpointing.get("endpointing") == SEMANTIC:
        endpointing = {**endpointing, "eagerness": members.get(EAGERNESS)}
    elif members.has(EAGERNESS.name):
        members.refuse(EAGERNESS.name, "missing_companion", f"needs endpointing={SEMANTIC}")
    if members.has("callback"):
        members.refuse("callback", "not_offered", "results come on the WebSocket")
    track = live_track(members, members.take("encoding", _encoding, CONTAINER))
    separate, channels = _channels(members, track)
    live = replace(_live(members, channels, interim=interim), **endpointing)
    return LiveRequest(
        order=replace(_order(members, offer, live=live), separate=separate, track=track),
        warnings=_warnings(members, LIVE),
        punctuated=_punctuated(members),
        interim=interim,
        speech_events=members.take("vad_events", boolean, False),
        ends_speech=ends_speech,
        utterance_end_ms=utterance_end_ms,
    )


def parse_file(query: QueryParams, offer: Offer) -> FileRequest:
    """Parse the query of a request with a file or an address. Raises Refused invalid_parameter."""
    members = _members(query)
    track = members.get(TRACK)
    separate = members.take("multichannel", boolean, False)
    if separate:
        refuse_both(members, track, "multichannel")
    raw = _raw_audio(members, separate=separate, track=track)
    shape = DeepgramShape(
        punctuated=_punctuated(members),
        paragraphs=members.take("paragraphs", boolean, False) or members.take("smart_format", boolean, False),
        utterances=members.take("utterances", boolean, False),
        language=members.take(DETECT_LANGUAGE, _switch, False),
    )
    callback = members.take("callback", url_text, None)
    if members.has("callback_method") and str(members.fields["callback_method"][0]).lower() != "post":
        members.refuse("callback_method", "not_offered", "the answer is sent by POST")
    return FileRequest(
        order=replace(_order(members, offer, live=None), separate=separate or track == SEPARATE, track=track, raw=raw),
        shape=shape,
        warnings=_warnings(members, FILE),
        callback=callback,
    )


def _members(query: QueryParams) -> Members:
    fields: dict[str, list[object]] = {}
    for key, value in query.multi_items():
        name = plain_name(key)
        if value or name == REDACT:
            fields.setdefault(name, []).append(value)
    return Members(fields)


def _warnings(members: Members, known: frozenset[str]) -> tuple[Mapping[str, str], ...]:
    """A warning for each member without effect, unless its value is false."""
    asked = {name: values for name, values in members.fields.items() if set(values) != {"false"}}
    return unknown_members(asked, known | HARMLESS)


def _order(members: Members, offer: Offer, *, live: LiveOptions | None) -> Order:
    """Make the order."""
    model = members.take("model", _model_among(offer), None)
    offer = offer.of(model)
    spoken = _languages_of(members, offer)
    hints = members.take("keyterm", _terms, ()) + members.take("keywords", _without_boosts, ())
    text = text_options(members, spoken, names=hints, redact=_redactions)
    diarize = members.take("diarize", boolean, False) or members.has(DIARIZE_MODEL)
    if diarize and not offer.speakers:
        members.refuse(DIARIZE_MODEL if members.has(DIARIZE_MODEL) else "diarize", "not_offered", NOT_INSTALLED)
    members.check()
    return Order(
        model=model,
        language=spoken.language,
        languages=spoken.languages,
        diarize=diarize,
        keywords=hints,
        word_timestamps=True,
        live=live,
        text=replace(text, paragraphs=False),  # file_answer() makes its own
    )


def _languages_of(members: Members, offer: Offer) -> Spoken:
    """The languages of a request. detect_language and language_hint may be repeated, with a language each."""
    switches = ("true", "false", "1", "0")
    listed = [value for value in members.fields.get(DETECT_LANGUAGE, ()) if str(value).lower() not in switches]
    named = Members({**members.fields, DETECT_LANGUAGE: listed}, errors=members.errors)
    return spoken_languages(named, offer, several=(DETECT_LANGUAGE, LANGUAGE_HINT, LANGUAGES.name))


def _channels(members: Members, track: TrackChoice) -> tuple[bool, int]:
    """Whether channels or tracks of live audio are separate, and how many there are.

    If the request gives no number, a container with separate channels or tracks has two.
    """
    asked = members.take("multichannel", boolean, False)
    if asked:
        refuse_both(members, track, "multichannel")
    asked |= track == SEPARATE
    usual = SEPARATE_CHANNELS[0] if asked and not members.has("encoding") else 1
    channels = members.take("channels", _number, usual) or 1
    separate = asked and (channels > 1 or track == SEPARATE)
    allowed = SEPARATE_CHANNELS if separate else CHANNELS
    if channels not in allowed:
        members.refuse("channels", "out_of_range", f"from {allowed[0]} to {allowed[-1]}")
    return separate, channels


def _raw_audio(members: Members, *, separate: bool, track: TrackChoice) -> RawAudio | None:
    """What a file without a header holds, if the request declares it. Encodings with a header of their own state it."""
    encoding = members.take("encoding", _encoding, CONTAINER)
    rate, channels = members.take("sample_rate", _number, None), members.take("channels", _number, None)
    if encoding == CONTAINER and members.has("encoding"):
        return None
    if rate is not None and rate not in RATES:
        members.refuse("sample_rate", "out_of_range", f"must be from {RATES[0]} to {RATES[-1]}")
    separate = separate and channels != 1
    return raw_audio(members, encoding, rate, channels, separate=separate, track=track, counted_by="channels")


def _live(members: Members, channels: int, *, interim: bool) -> LiveOptions:
    encoding = members.take("encoding", _encoding, CONTAINER)
    rate = members.take("sample_rate", _number, None)
    if encoding != CONTAINER and (rate is None or rate not in RATES):
        takes = f"{encoding} needs a rate from {RATES[0]} to {RATES[-1]}"
        members.refuse("sample_rate", "out_of_range", takes)
    members.check()
    return LiveOptions(
        encoding=encoding,
        sample_rate=LiveOptions().sample_rate if rate is None or encoding == CONTAINER else rate,
        channels=channels,
        interim_results=interim,
        ends_at_once=True,
    )


def _punctuated(members: Members) -> bool:
    return members.take("punctuate", boolean, False) or members.take("smart_format", boolean, False)


def _check_utterance_end(value: int | None, members: Members, *, interim: bool) -> None:
    if value is None:
        return
    if value < MIN_UTTERANCE_END_MS:
        members.refuse("utterance_end_ms", "out_of_range", f"Invalid value of '{value}'.")
    elif not interim:
        members.refuse("utterance_end_ms", "missing_companion", "needs interim_results=true")


# --- parsers, as those of server/parsing/members.py ---------------------------------------------------------------


def _model_among(offer: Offer) -> Callable[[Sequence[object]], str | None]:
    """A parser of the model's name. It returns None for those of Deepgram, which leave the choice to the server."""

    def parse(values: Sequence[object]) -> str | None:
        name = str(values[0]).strip()
        if not offer.has(name) and MODELS.fullmatch(name) is None:
            raise InvalidValue("unknown_value", offer.unknown_model(name))
        return offer.model_named(name)

    return parse


def _number(values: Sequence[object]) -> int:
    text = str(values[0])
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):  # noqa: PLR2004  a day in milliseconds has eight
        raise InvalidValue("invalid_type", "must be a whole number")
    return int(text)


def _switch(values: Sequence[object]) -> bool:
    """A switch that may also have values: detect_language=en&detect_language=de."""
    return str(values[0]).lower() not in ("false", "0")


def _endpointing(values: Sequence[object]) -> tuple[bool, Mapping[str, Any]]:
    """Whether pauses set speech_final, and the members of LiveOptions that decide when a turn ends.

    Shorter pauses, which Deepgram allows, are raised to our bound. SEMANTIC is an extension of ours.
    """
    said = str(values[0]).lower()
    if said == "false":
        return False, {"endpointing_ms": bounds.ENDPOINTING_MS[-1]}
    if said == SEMANTIC:
        return True, {"endpointing": SEMANTIC}
    asked_ms = LiveOptions().endpointing_ms if said == "true" else _number(values)
    return True, {"endpointing_ms": max(bounds.ENDPOINTING_MS[0], min(bounds.ENDPOINTING_MS[-1], asked_ms))}


def _encoding(values: Sequence[object]) -> str:
    name = str(values[0])
    if name in FILES:
        return CONTAINER
    if name not in RAW:
        raise InvalidValue("unknown_value", f"must be one of {', '.join((*RAW, *FILES))}, or left out for files")
    return RAW[name]


def _redactions(values: Sequence[object]) -> tuple[str, ...]:
    """The kinds to redact, by Deepgram's names or ours. Deepgram's other kinds are refused."""
    names = [name.strip().lower() for value in values for name in str(value).split(",") if name.strip()]
    for name in names:
        if name not in REDACT_NAMES:
            raise InvalidValue("unknown_value", f"unknown value {name[:100]!r}; allowed: {', '.join(REDACT_NAMES)}")
    if not names:
        raise InvalidValue("empty", f"must name at least one of {', '.join(REDACT_NAMES)}")
    return tuple(dict.fromkeys(kind for name in names for kind in REDACT_NAMES[name]))


def _terms(values: Sequence[object]) -> tuple[str, ...]:
    return keywords([list(values)])


def _without_boosts(values: Sequence[object]) -> tuple[str, ...]:
    """Keywords without the weight behind a colon, which has no effect here."""
    return keywords([[str(value).partition(":")[0] for value in values]])


def url_of(fields: Mapping[str, Sequence[object]]) -> str:
    """The address in the JSON body of a request without a file. Raises Refused missing_input, invalid_parameter.

    invalid_parameter is also raised if the body asks for redaction, because other members than url are not read there.
    """
    if REDACT in fields:
        raise invalid_member(REDACT, "misplaced", "belongs into the query; the body redacts nothing")
    url = fields.get("url", [None])[0]
    if url is None:
        raise Refused("missing_input", 'send the audio itself, or {"url": "https://..."} as application/json')
    if not isinstance(url, str) or len(url) > bounds.MAX_URL_CHARS:
        raise invalid_member("url", "invalid_type", "must be an address")
    return url
