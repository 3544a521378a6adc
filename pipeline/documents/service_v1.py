"""What a transcript's JSON file contains, as types that make its JSON Schema. Pure.

Records and events have the same words, segments, paragraphs and hits; formats.py makes them.
"""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta
from msgspec.json import schema_components

SCHEMA: Literal["service_v1"] = "service_v1"
"""The name of the JSON file's schema."""

Seconds = Annotated[float, Meta(ge=0)]
Probability = Annotated[float, Meta(ge=0, le=1)]
Text = Annotated[str, Meta(min_length=1)]
Language = Annotated[str, Meta(pattern="^[a-z]{2,3}$")]


class Spoken(TypedDict):
    channel: NotRequired[Annotated[int, Meta(ge=0, description="Where channels are separate: which one, from 0")]]
    speaker: NotRequired[Annotated[Text, Meta(description="Who speaks, where that is known: S1, S2, ...")]]


class Span(TypedDict):
    start: Seconds
    end: Seconds


class Word(Span, Spoken):
    word: Text
    probability: Probability
    heard: NotRequired[Annotated[Text, Meta(description="What was said, where numerals or replace changed it")]]
    redacted: NotRequired[Annotated[Literal[True], Meta(description="The word is a label in place of what was said")]]
    language: NotRequired[Annotated[Language, Meta(description="In which it was said, where several were found")]]


class Segment(Span, Spoken):
    id: Annotated[int, Meta(ge=0)]
    text: str
    avg_logprob: Annotated[float, Meta(le=0)]
    no_speech_prob: Probability
    language: NotRequired[Language]


class Sentence(Span):
    text: Text


class Paragraph(Span, Spoken):
    sentences: Annotated[list[Sentence], Meta(min_length=1)]


class Hit(Span):
    """A place where a term was said."""

    confidence: Probability
    snippet: Text


class Found(TypedDict):
    """A term of the request's search, and where it was said."""

    query: Text
    hits: list[Hit]


class Speaker(TypedDict):
    """Who speaks for how long."""

    speaker: Text
    seconds: Seconds


class SpokenLanguage(TypedDict):
    """A language that was found, and its share of the speech."""

    language: Language
    share: Probability


class Translation(Span):
    """Words in another language."""

    first: Annotated[int, Meta(ge=0, description="The number of the first word, as in the events")]
    last: Annotated[int, Meta(ge=0)]
    text: Text
    channel: NotRequired[Annotated[int, Meta(ge=0)]]


class Turn(Span):
    """A stretch in which one speaker speaks."""

    channel: NotRequired[Annotated[int, Meta(ge=0)]]
    speaker: Text


class ServiceV1(TypedDict):
    """The JSON output of a transcription job. Times are seconds from the start of the audio."""

    schema: Literal["service_v1"]
    job_id: Annotated[str, Meta(pattern="^job_[0-9A-Za-z]{20,40}$")]
    created_at: Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
    duration: Seconds
    language: Language | None
    language_probability: Probability | None
    languages: NotRequired[
        Annotated[list[SpokenLanguage], Meta(description="Those that were found, most speech first")]
    ]
    model: Text
    engine: str
    text: str
    segments: list[Segment]
    words: NotRequired[list[Word]]
    paragraphs: NotRequired[list[Paragraph]]
    search: NotRequired[list[Found]]
    speakers: NotRequired[list[Speaker]]
    turns: NotRequired[list[Turn]]
    translations: NotRequired[
        Annotated[dict[Language, list[Translation]], Meta(description="By the languages of translate_to")]
    ]
    metadata: dict[str, str]


def service_v1_schema(public_base: str) -> dict[str, Any]:
    """Return the schema with the `$id` under which the server at *public_base* (without a final slash) serves it."""
    _, parts = schema_components([ServiceV1], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{public_base}/schemas/{SCHEMA}.json",
        **parts.pop("ServiceV1"),
        "title": SCHEMA,
        "$defs": parts,
    }
