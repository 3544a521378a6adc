"""Turning the members of a transcription request into an Order.

Unknown members are only warned of, so that a typing error is noticed and a newer client still works.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import orjson

from pipeline.documents.cues import USUAL_SHAPE, SubtitleShape
from pipeline.ingest.encodings import CHANNELS, RATES, SEPARATE_CHANNELS
from pipeline.recognition.engine import TASKS, TRANSCRIBE, TRANSLATE
from pipeline.speakers.options import NOT_INSTALLED
from server.jobs.known_speakers import MEMBERS as KNOWN_SPEAKERS
from server.jobs.known_speakers import known_speakers, without_brackets
from server.jobs.members import (
    Fields,
    Members,
    Wrong,
    boolean,
    from_text,
    keywords,
    number_in,
    one_of,
    single,
    string,
    subset,
    text_up_to,
    url_text,
    whole_in,
    whole_seconds,
)
from server.jobs.text_members import TEXT_MEMBERS, text_options
from server.model import bounds
from server.model.errors import FieldError, Refused, invalid
from server.model.offers import Offer
from server.model.orders import LiveOptions, Order

SUBTITLES = frozenset(SubtitleShape.__dataclass_fields__)
COMMON = SUBTITLES | {
    *TEXT_MEMBERS,
    "output_formats",
    "language",
    "task",
    "model",
    "prompt",
    "keywords",
    "webhook_url",
    "webhook_events",
    "metadata",
    "retention",
    "diarize",
    "max_speakers",
}
LIVE_ONLY = frozenset({*LiveOptions.__slots__, "channel_count", "word_timestamps"})
FILE_ONLY = frozenset({"file", "url", "audio_url", "word_timestamps", "wait", "sandbox_scenario", "schema", "channels"})
MIXED, SEPARATE = bounds.CHANNEL_MODES
MULTI = "multi"  # the language of recordings in which people change it
MAX_WARNINGS = 8  # of unknown members; they are stored with the job


@dataclass(frozen=True, slots=True)
class Asked:
    """A parsed request: the order, the address of the audio, and how long the client wants to wait (None: not said)."""

    order: Order
    url: str | None
    wait_s: int | None
    warnings: tuple[Mapping[str, str], ...]
    known_speakers: Mapping[str, bytes] = field(default_factory=dict)  # a recording of each person, by name


def parse_order(fields: Fields, *, offer: Offer, sandbox: bool, has_file: bool) -> Asked:
    """Parse a request for a file's transcription. Raises Refused: missing_input, ambiguous_input, invalid_parameter."""
    fields = without_brackets(fields)
    members = Members(fields)
    url, twin = members.take("url", url_text, None), members.take("audio_url", url_text, None)
    given = members.has("url") + members.has("audio_url") + has_file
    if given > 1:
        raise Refused("ambiguous_input", "give exactly one of file, url and audio_url")
    order = common_order(
        members,
        offer=offer,
        word_timestamps=members.take("word_timestamps", boolean, False),
        scenario=members.take("sandbox_scenario", one_of(bounds.SCENARIOS), None) if sandbox else None,
    )
    task = members.take("task", _task(offer), TRANSCRIBE)
    separate = members.take("channels", one_of(bounds.CHANNEL_MODES), MIXED) == SEPARATE
    wait_s = members.take("wait", whole_seconds, None)
    members.take("schema", one_of(("service_v1",)), None)
    people = known_speakers(members, diarize=order.diarize, max_speakers=order.max_speakers)
    members.check()
    if not given:
        raise Refused("missing_input", "give the audio as a multipart part named file, or its address as url")
    known = COMMON | FILE_ONLY | KNOWN_SPEAKERS
    return Asked(
        replace(order, task=task, separate=separate, known_speakers=tuple(people)),
        twin if url is None else url,
        wait_s,
        unknown_members(fields, known if sandbox else known - {"sandbox_scenario"}),
        people,
    )


def parse_live_order(
    fields: Fields, *, offer: Offer
) -> tuple[Order, Mapping[str, bytes], tuple[Mapping[str, str], ...]]:
    """The order of a live session, a recording of each known speaker by name, and warnings.

    Raises Refused invalid_parameter.
    """
    fields = without_brackets(fields)
    members = Members(fields)
    default = LiveOptions()
    encoding = members.take("encoding", one_of(bounds.ENCODINGS), default.encoding)
    channels, separate = _live_channels(members)
    usual_rate = bounds.TELEPHONE_RATE if encoding in bounds.TELEPHONE_ENCODINGS else default.sample_rate
    live = LiveOptions(
        encoding=encoding,
        sample_rate=members.take("sample_rate", whole_in(RATES), usual_rate),
        channels=channels,
        interim_results=members.take("interim_results", boolean, default.interim_results),
        endpointing_ms=members.take("endpointing_ms", whole_in(bounds.ENDPOINTING_MS), default.endpointing_ms),
        max_utterance_s=members.take("max_utterance_s", number_in(*bounds.UTTERANCE_S), default.max_utterance_s),
        record=members.take("record", boolean, default.record),
        channel=members.take("channel", channel_name, default.channel),
    )
    members.take("task", _live_task, TRANSCRIBE)
    timed = members.take("word_timestamps", boolean, True)  # live words always have their times
    order = common_order(members, offer=offer, word_timestamps=timed)
    people = known_speakers(members, diarize=order.diarize, max_speakers=order.max_speakers)
    members.check()
    order = replace(order, live=live, separate=separate, known_speakers=tuple(people))
    return order, people, unknown_members(fields, COMMON | LIVE_ONLY | KNOWN_SPEAKERS)


def _live_channels(members: Members) -> tuple[int, bool]:
    """How many channels the audio of a live session has, and whether each is heard by itself."""
    count = members.take("channel_count", whole_in(SEPARATE_CHANNELS), None)
    if members.fields.get("channels") == [SEPARATE]:
        return count or SEPARATE_CHANNELS[0], True
    if count is not None:
        members.errors.append(FieldError("channel_count", "missing_companion", f"needs channels={SEPARATE}"))
    return members.take("channels", _mixed_channels, LiveOptions().channels), False


def common_order(members: Members, *, offer: Offer, word_timestamps: bool, scenario: str | None = None) -> Order:
    """Parse the members that files and live sessions share."""
    webhook_url = members.take("webhook_url", url_text, None)
    events = members.take("webhook_events", subset(bounds.WEBHOOK_EVENTS), ())
    spoken = members.take("language", _language(offer), None)
    language = None if spoken == MULTI else spoken
    names = members.take("keywords", keywords, ())
    if events and not members.has("webhook_url"):
        members.errors.append(FieldError("webhook_events", "missing_companion", "needs webhook_url"))
    return Order(
        output_formats=members.take("output_formats", subset(bounds.FORMATS), ("json",)),
        word_timestamps=word_timestamps,
        language=language,
        multilingual=spoken == MULTI,
        model=members.take("model", one_of((offer.model,)), None),
        prompt=members.take("prompt", text_up_to(bounds.MAX_PROMPT_CHARS), ""),
        keywords=names,
        webhook_url=webhook_url,
        webhook_events=(events or bounds.WEBHOOK_EVENTS) if webhook_url else (),
        metadata=members.take("metadata", _metadata, {}),
        scenario=scenario,
        retention=members.take("retention", one_of(bounds.RETENTIONS), None),
        subtitles=subtitle_shape(members),
        text=text_options(members, language=language, names=names),
        diarize=members.take("diarize", _diarize(offer), False),
        max_speakers=members.take("max_speakers", from_text(whole_in(bounds.MAX_SPEAKERS)), None),
    )


def subtitle_shape(members: Members) -> SubtitleShape:
    """Parse the members that shape SRT and VTT."""
    usual = USUAL_SHAPE
    speeds = from_text(number_in(*bounds.COLUMNS_PER_SECOND))
    return SubtitleShape(
        max_columns=members.take("max_columns", from_text(whole_in(bounds.MAX_COLUMNS)), usual.max_columns),
        max_lines=members.take("max_lines", from_text(whole_in(bounds.MAX_LINES)), usual.max_lines),
        max_cue_s=members.take("max_cue_s", from_text(number_in(*bounds.MAX_CUE_S)), usual.max_cue_s),
        columns_per_second=members.take("columns_per_second", speeds, usual.columns_per_second),
    )


def with_retention(order: Order, default: str | None) -> Order:
    """The order with the key's *default* where it names no retention.

    Raises Refused invalid_parameter if it asks for a recording that would not be kept.
    """
    settled = order if order.retention is not None else replace(order, retention=default)
    if not settled.kept and settled.live is not None and settled.live.record:
        raise invalid([FieldError("record", "conflict", "a recording is kept, which retention none rules out")])
    return settled


def unknown_members(fields: Fields, known: Collection[str]) -> tuple[Mapping[str, str], ...]:
    """A warning for each member that is not *known*, up to MAX_WARNINGS."""
    unknown = [name for name in fields if name not in known]
    return tuple({"code": "unknown_parameter", "param": name[:100]} for name in unknown[:MAX_WARNINGS])


def language_among(offer: Offer) -> Callable[[Sequence[object]], str | None]:
    """Parses languages that may be spoken, as other services take them: a list of tags such as en or pt-BR.

    One that the model hears is the language. Of several it is detected, which None stands for; MULTI is returned if it
    is among them and the model hears several.
    """

    def parse(values: Sequence[object]) -> str | None:
        items = [item for value in values for item in (value if isinstance(value, list) else [value])]
        tags = [tag for item in items if isinstance(item, str) for tag in item.split(",")]
        given = [text.replace("_", "-").partition("-")[0] for tag in tags if (text := tag.strip().lower())]
        if not all(isinstance(item, str) for item in items):
            raise Wrong("invalid_type", "must be a language or a list of languages")
        if MULTI in given and len(offer.languages) > 1:
            return MULTI
        heard = set(given) & offer.languages
        if given and not heard:
            raise Wrong("unknown_value", offer.refusal(given[0]))
        return heard.pop() if len(set(given)) == 1 else None

    return parse


def _mixed_channels(values: Sequence[object]) -> int:
    """A number of channels that are heard together."""
    if isinstance(single(values), str):
        raise Wrong("unknown_value", f'must be {CHANNELS[0]}, {CHANNELS[-1]} or "{SEPARATE}"')
    return whole_in(CHANNELS)(values)


def channel_name(values: Sequence[object]) -> str:
    """The name of a channel. It is shown to people and typed by them."""
    name = text_up_to(bounds.MAX_CHANNEL_CHARS)(values).strip()
    if not name.isprintable() or not name:
        raise Wrong("invalid_value", "must be text without control characters")
    return name


def _language(offer: Offer) -> Callable[[Sequence[object]], str]:
    def parse(values: Sequence[object]) -> str:
        value = string(values).strip().lower()
        if value not in offer.languages and not (value == MULTI and len(offer.languages) > 1):
            raise Wrong("unknown_value", offer.refusal(value))
        return value

    return parse


def _diarize(offer: Offer) -> Callable[[Sequence[object]], bool]:
    def parse(values: Sequence[object]) -> bool:
        if (wanted := boolean(values)) and not offer.speakers:
            raise Wrong("not_offered", NOT_INSTALLED)
        return wanted

    return parse


def _task(offer: Offer) -> Callable[[Sequence[object]], str]:
    def parse(values: Sequence[object]) -> str:
        task = one_of(TASKS)(values)
        if task == TRANSLATE and (refusal := offer.translation_refusal) is not None:
            raise Wrong("unknown_value", refusal)
        return task

    return parse


def _live_task(values: Sequence[object]) -> None:
    """Live words never change, and a translation has another order than what is still being said."""
    if one_of(TASKS)(values) == TRANSLATE:
        raise Wrong("unknown_value", "live sessions do not translate; send the recording to /v1/transcribe")


def _metadata(values: Sequence[object]) -> Mapping[str, str]:
    value = single(values)
    if isinstance(value, str):  # forms send it as JSON text
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            raise Wrong("invalid_json", "must be a JSON object") from None
    if not isinstance(value, dict):
        raise Wrong("invalid_type", "must be a JSON object")
    if len(value) > bounds.MAX_METADATA_KEYS:
        raise Wrong("too_many", f"must have at most {bounds.MAX_METADATA_KEYS} keys")
    for key, text in value.items():
        if not isinstance(text, str):
            raise Wrong("invalid_type", f"{key[:40]!r} must be a string")
        if len(key) > bounds.MAX_METADATA_CHARS or len(text) > bounds.MAX_METADATA_CHARS:
            raise Wrong("too_long", f"keys and values must have at most {bounds.MAX_METADATA_CHARS} characters")
    return value
