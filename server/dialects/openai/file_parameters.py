"""Parses the members that OpenAI's clients send with an audio file into an order.

Members without effect here, such as chunking_strategy, get a warning.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipeline.recognition.engine import TRANSCRIBE, TRANSLATE
from pipeline.speakers.options import NOT_INSTALLED
from server.dialects.openai.errors import invalid_value, unknown_model
from server.http.problems import Problem
from server.model.errors import invalid_member
from server.model.jobs import Received
from server.model.offers import DIARIZING_MODEL, Offer
from server.model.orders import Order
from server.parsing.declared import (
    CHANNEL_MODE,
    DIARIZE,
    KEYWORDS,
    KNOWN_SPEAKERS,
    MAX_SPEAKERS,
    PROMPT,
    RAW_MEMBERS,
    RETENTION,
    SUBTITLE_MEMBERS,
    TRACK,
    TRANSLATE_TO,
    known_speakers,
)
from server.parsing.members import Fields, Member, Members, Parser, boolean, plain_fields, texts
from server.parsing.orders import ParsedRequest, audio_order, common_order, ignored_speakers, unknown_members
from server.parsing.text import LANGUAGE, LANGUAGES, TERMS, TEXT_MEMBERS

FILE_FORMATS = {"text": "txt", "srt": "srt", "vtt": "vtt"}
DIARIZED = "diarized_json"
RESPONSE_FORMATS = ("json", "verbose_json", *FILE_FORMATS)
LOGPROBS = "logprobs"
GRANULARITIES = ("word", "segment")
COMMON: tuple[Member[Any], ...] = (
    LANGUAGE, LANGUAGES, TRANSLATE_TO, PROMPT, KEYWORDS, RETENTION, CHANNEL_MODE, TRACK, DIARIZE, MAX_SPEAKERS,
    *RAW_MEMBERS, *TEXT_MEMBERS, *SUBTITLE_MEMBERS,
)  # fmt: skip
COMMON_NAMES = tuple(member.name for member in COMMON)
KNOWN = {
    *COMMON_NAMES,
    "file",
    "model",
    "response_format",
    "temperature",
    "timestamp_granularities",
    "stream",
    "include",
}


class ResponseOptions:
    """The form of the answer to a request. read() fills it in. *translating* means that the text must be English."""

    def __init__(self, *, translating: bool = False) -> None:
        self.translating = translating
        self.response_format = "json"
        self.granularities: tuple[str, ...] = ("segment",)
        self.stream = False
        self.logprobs = False

    @property
    def task(self) -> str:
        """The task of the order."""
        return TRANSLATE if self.translating else TRANSCRIBE

    @property
    def diarized(self) -> bool:
        """Whether the answer has the speaker of each segment."""
        return self.response_format == DIARIZED

    def read(self, received: Received, offer: Offer) -> ParsedRequest:
        """Parse the request. Raises Refused: missing_input, empty_file, model_not_found, invalid_parameter."""
        fields = plain_fields(received.fields)
        if received.file is None:
            raise Problem("missing_input", "give the audio as the multipart part file")
        if received.file.bytes == 0:
            raise Problem("empty_file", "the file has no bytes")
        model = _model(fields.get("model", ()), offer)
        chosen = offer.model_named(model)
        offer = offer.of(chosen)
        formats = RESPONSE_FORMATS if self.translating else (*RESPONSE_FORMATS, DIARIZED)
        self.response_format = _choice(fields, "response_format", formats, "json")
        self.granularities = _granularities(fields.get("timestamp_granularities", ())) or ("segment",)
        _check_temperature(fields.get("temperature", ["0"])[0])
        if self.translating:
            _check_translation(offer)
        else:
            members = Members(fields)
            self.stream = members.take("stream", boolean, False)
            asked = members.take("include", Parser(texts, TERMS), [])
            members.check()
            self.logprobs = self.response_format == "json" and LOGPROBS in asked
        order = replace(_order(fields, offer), task=self.task, model=chosen)
        if _wants_speakers(model, offer) or (self.diarized and offer.speakers and not order.separate):
            order = replace(order, diarize=True)
        output = FILE_FORMATS.get(self.response_format, "json")
        people = _people(fields, order)
        order = replace(order, output_formats=(output,), known_speakers=tuple(people))
        warnings = Members(fields).shortened_prompt(PROMPT) + ignored_speakers(order)
        without_effect = set() if self.logprobs else {"include"}
        warnings += unknown_members(fields, (KNOWN | KNOWN_SPEAKERS) - without_effect)
        return ParsedRequest(order, warnings=warnings, known_speakers=people)


def _people(fields: Fields, order: Order) -> Mapping[str, bytes]:
    members = Members(fields)
    people = known_speakers(members, diarize=order.diarize, max_speakers=order.max_speakers)
    members.check()
    return people


def _wants_speakers(model: str, offer: Offer) -> bool:
    """Whether the name of the model asks for speakers. Raises Refused if this server cannot label them."""
    if model != DIARIZING_MODEL or offer.model == DIARIZING_MODEL:
        return False
    if not offer.speakers:
        raise invalid_member("model", "not_offered", NOT_INSTALLED)
    return True


def _order(fields: Fields, offer: Offer) -> Order:
    members = Members({name: fields[name] for name in COMMON_NAMES if name in fields})
    order = common_order(members, offer=offer, word_timestamps=True)
    audio = audio_order(members)
    members.check()
    return replace(order, **audio)


def _model(given: Sequence[object], offer: Offer) -> str:
    """The name of the model; left out, one that leaves the choice to the server. Raises Refused model_not_found."""
    if len(set(map(str, given))) > 1:
        raise invalid_value("model", "may be given only once")
    name = str(given[0]) if given else offer.aliases[0]
    if not offer.has(name):
        raise unknown_model(name, offer)
    return name


def _granularities(given: Sequence[object]) -> tuple[str, ...]:
    """The granularities: repeated, with commas, as a JSON array or as other languages print a list."""
    names = [name for value in given for name in re.split(r"[][\s,\"']+", str(value).lower()) if name]
    if not set(names) <= set(GRANULARITIES):
        raise invalid_value("timestamp_granularities", f"must be of {', '.join(GRANULARITIES)}")
    return tuple(dict.fromkeys(names))


def _check_translation(offer: Offer) -> None:
    if (refusal := offer.translation_refusal) is not None:
        raise invalid_member("model", "unknown_value", refusal)


def _check_temperature(given: object) -> None:
    """Raise Refused for an impossible temperature. A possible one has no effect."""
    try:
        sound = 0 <= float(str(given)) <= 1
    except ValueError:
        sound = False
    if not sound:
        raise invalid_value("temperature", "must be a number from 0 to 1")


def _choice(fields: Fields, name: str, allowed: tuple[str, ...], default: str) -> str:
    value = str(fields.get(name, [default])[0]).strip().lower()
    if value not in allowed:
        raise invalid_value(name, f"must be one of {', '.join(allowed)}")
    return value
