"""Parses the members of a transcription request into an Order.

An unknown member only causes a warning, so that a typing error is noticed and a newer client still works.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pipeline.documents.cues import SubtitleShape
from pipeline.ingest.input_formats import (
    ALL_TRACKS,
    AUTO,
    CHANNELS,
    SAMPLE_BYTES,
    SEPARATE,
    SEPARATE_CHANNELS,
    Encoding,
    RawAudio,
    TrackChoice,
)
from pipeline.languages import language_named, unknown_language
from pipeline.recognition.engine import TASKS, TRANSLATE
from pipeline.speakers.options import NOT_INSTALLED
from server.model import bounds
from server.model.errors import Refused, invalid_member
from server.model.offers import Offer
from server.model.orders import CONTAINER, SEMANTIC, LiveOptions, Order
from server.parsing import declared
from server.parsing.declared import known_speakers
from server.parsing.members import Fields, InvalidValue, Members, boolean, one_of, plain_fields, string, texts
from server.parsing.text import spoken_languages, text_options

MAX_WARNINGS = 8  # of unknown members; they are stored with the job


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A parsed request: the order, the audio's address, and how long the client wants to wait (None: not given)."""

    order: Order
    url: str | None = None
    wait_s: int | None = None
    warnings: tuple[Mapping[str, str], ...] = ()
    known_speakers: Mapping[str, bytes] = field(default_factory=dict)  # a recording of each person, by name


def parse_order(fields: Fields, *, offer: Offer, sandbox: bool, has_file: bool) -> ParsedRequest:
    """Parse a request for a file's transcription. Raises Refused: missing_input, ambiguous_input, invalid_parameter."""
    fields = plain_fields(fields)
    members = Members(fields)
    url, twin = members.get(declared.URL), members.get(declared.AUDIO_URL)
    given = members.has(declared.URL.name) + members.has(declared.AUDIO_URL.name) + has_file
    if given > 1:
        raise Refused("ambiguous_input", "Give exactly one of file, url and audio_url.")
    order = common_order(
        members,
        offer=offer,
        word_timestamps=members.get(declared.WORD_TIMESTAMPS),
        scenario=members.get(declared.SCENARIO) if sandbox else None,
    )
    audio = audio_order(members)
    record = members.get(declared.FILE_RECORD)
    if record and order.text.redact:
        members.refuse(declared.FILE_RECORD.name, "conflict", "the kept file would have what redact hides")
    wait_s = members.get(declared.WAIT)
    members.get(declared.DOCUMENT_SCHEMA)
    people = known_speakers(members, diarize=order.diarize, max_speakers=order.max_speakers)
    members.check()
    if not given:
        raise Refused("missing_input", "Give the audio as a multipart part named file, or its address as url.")
    known = {"file", *(member.name for member in declared.FILE_MEMBERS)}
    unknown = unknown_members(fields, known if sandbox else known - {declared.SCENARIO.name})
    return ParsedRequest(
        replace(order, **audio, record=record, known_speakers=tuple(people)),
        twin if url is None else url,
        wait_s,
        members.shortened_prompt(declared.PROMPT) + ignored_speakers(order) + unknown,
        people,
    )


def parse_live_order(fields: Fields, *, offer: Offer) -> ParsedRequest:
    """Parse a request for a live session. Raises Refused invalid_parameter."""
    fields = plain_fields(fields)
    members = Members(fields)
    encoding = members.get(declared.ENCODING)
    track = live_track(members, encoding)
    channels, separate = _live_channels(members, track)
    usual_rate = bounds.TELEPHONE_RATE if encoding in bounds.TELEPHONE_ENCODINGS else LiveOptions().sample_rate
    live = LiveOptions(
        encoding=encoding,
        sample_rate=members.get(declared.SAMPLE_RATE) or usual_rate,
        channels=channels,
        ends_at_once=members.has(declared.ENDPOINTING_MS.name),
        **{member.name: members.get(member) for member in declared.LIVE_OPTIONS},
    )
    warnings = members.shortened_prompt(declared.PROMPT) + _ignored_silence(members, live)
    order = common_order(members, offer=offer, word_timestamps=members.get(declared.LIVE_WORD_TIMESTAMPS))
    people = known_speakers(members, diarize=order.diarize, max_speakers=order.max_speakers)
    members.check()
    warnings += ignored_speakers(order) + unknown_members(fields, {one.name for one in declared.LIVE_MEMBERS})
    order = replace(order, live=live, separate=separate, track=track, known_speakers=tuple(people))
    return ParsedRequest(order, warnings=warnings, known_speakers=people)


def live_track(members: Members, encoding: str) -> TrackChoice:
    """The track of a live container. Adds faults to *members*."""
    track = members.get(declared.TRACK)
    if track != declared.TRACK.default and encoding != CONTAINER:
        members.refuse(declared.TRACK.name, "missing_companion", f"needs encoding={CONTAINER}: raw audio has no tracks")
    return track


def refuse_both(members: Members, track: TrackChoice, channels: str) -> None:
    """Refuse separate *channels*, the member that orders them, together with all tracks."""
    if track in ALL_TRACKS:
        refusal = f"{track} makes one channel of each track; leave out {channels}, or give the number of a track"
        members.refuse(declared.TRACK.name, "conflict", refusal)


def audio_order(members: Members) -> dict[str, Any]:
    """The members separate, track and raw of an Order for a file. Separate tracks are channels."""
    separate, track = members.get(declared.CHANNEL_MODE) == declared.SEPARATE, members.get(declared.TRACK)
    if separate:
        refuse_both(members, track, declared.CHANNEL_MODE.name)
    count = members.get(declared.FILE_CHANNELS)
    encoding, rate = members.get(declared.FILE_ENCODING), members.get(declared.FILE_RATE)
    raw = raw_audio(members, encoding, rate, count, separate=separate, track=track)
    return {"separate": separate or track == SEPARATE, "track": track, "raw": raw}


def raw_audio(
    members: Members,
    encoding: str,
    rate: int | None,
    count: int | None,
    *,
    separate: bool,
    track: TrackChoice,
    counted_by: str = declared.FILE_CHANNELS.name,
) -> RawAudio | None:
    """What a file without a header holds, as the request declares it; None for files with one.

    *counted_by* is the member with the number of channels. Adds faults to *members*.
    """
    given = [name for name, value in ((declared.FILE_RATE.name, rate), (counted_by, count)) if value is not None]
    if encoding == CONTAINER:
        faulty = any(fault.param == declared.FILE_ENCODING.name for fault in members.errors)
        for name in () if faulty else given:
            needed = ", ".join(SAMPLE_BYTES)
            members.refuse(
                name, "missing_companion", f"needs encoding={needed}; files with a header state it themselves"
            )
        return None
    if rate is None and not members.errors:
        members.refuse(declared.FILE_RATE.name, "missing_companion", f"is needed with encoding={encoding}")
    if track not in (AUTO, 1):
        members.refuse(declared.TRACK.name, "conflict", "raw audio has no tracks")
    channels = count or (SEPARATE_CHANNELS[0] if separate else CHANNELS[0])
    allowed = SEPARATE_CHANNELS if separate else CHANNELS
    if channels not in allowed:
        how = "separate" if separate else "mixed"
        members.refuse(counted_by, "out_of_range", f"must be from {allowed[0]} to {allowed[-1]} for {how} channels")
    return RawAudio(encoding=cast(Encoding, encoding), rate=rate or 0, channels=channels)


def _ignored_silence(members: Members, live: LiveOptions) -> tuple[Mapping[str, str], ...]:
    """A warning if a request has endpointing_ms although its turns end by meaning. Adds faults to *members*."""
    if live.endpointing == SEMANTIC:
        given = members.has(declared.ENDPOINTING_MS.name)
        return ({"code": "ignored_parameter", "param": "endpointing_ms"},) if given else ()
    if members.has(declared.EAGERNESS.name):
        members.refuse(declared.EAGERNESS.name, "missing_companion", f"needs endpointing={SEMANTIC}")
    return ()


def _live_channels(members: Members, track: TrackChoice) -> tuple[int, bool]:
    """The number of channels or tracks of a live session's audio that are separate, or of channels that are mixed."""
    count = members.get(declared.CHANNEL_COUNT)
    separate = members.fields.get(declared.AUDIO_CHANNELS.name) == [declared.SEPARATE]
    if separate:
        refuse_both(members, track, declared.AUDIO_CHANNELS.name)
    if separate or track == SEPARATE:
        return count or SEPARATE_CHANNELS[0], True
    if count is not None:
        needed = f"needs channels={declared.SEPARATE} or track={SEPARATE}"
        members.refuse(declared.CHANNEL_COUNT.name, "missing_companion", needed)
    return members.get(declared.AUDIO_CHANNELS), False


def common_order(members: Members, *, offer: Offer, word_timestamps: bool, scenario: str | None = None) -> Order:
    """Parse the members that files and live sessions share."""
    model = members.get(declared.MODEL, model_among(offer))
    offer = offer.of(model)
    webhook_url, events = members.get(declared.WEBHOOK_URL), members.get(declared.WEBHOOK_EVENTS)
    spoken = spoken_languages(members, offer)
    names = members.get(declared.KEYWORDS)
    if events and not members.has("webhook_url"):
        members.refuse("webhook_events", "missing_companion", "needs webhook_url")
    return Order(
        output_formats=members.get(declared.OUTPUT_FORMATS),
        word_timestamps=word_timestamps,
        language=spoken.language,
        languages=spoken.languages,
        task=members.get(declared.TASK, _task(offer)),
        translate_to=members.get(declared.TRANSLATE_TO, targets_among(offer)),
        model=model,
        prompt=members.get(declared.PROMPT),
        keywords=names,
        webhook_url=webhook_url,
        webhook_events=(events or bounds.USUAL_WEBHOOK_EVENTS) if webhook_url else (),
        metadata=members.get(declared.METADATA),
        scenario=scenario,
        retention=members.get(declared.RETENTION),
        subtitles=subtitle_shape(members),
        text=text_options(members, spoken, names=names),
        diarize=members.get(declared.DIARIZE, _diarize(offer)),
        max_speakers=members.get(declared.MAX_SPEAKERS),
    )


def subtitle_shape(members: Members) -> SubtitleShape:
    """Parse the members that shape SRT and VTT."""
    return SubtitleShape(**{member.name: members.get(member) for member in declared.SUBTITLE_MEMBERS})


def with_latency(order: Order, default: str) -> Order:
    """The order. One for a live session without a latency gets the server's *default*."""
    if order.live is None or order.live.latency is not None:
        return order
    return replace(order, live=replace(order.live, latency=default))


def with_retention(order: Order, default: str | None) -> Order:
    """The order, with the key's *default* retention if it names none.

    Raises Refused invalid_parameter if it asks for a recording that would not be kept.
    """
    settled = order if order.retention is not None else replace(order, retention=default)
    if not settled.keeps_results and settled.keeps_audio:
        raise invalid_member("record", "conflict", "a recording is kept, which retention none rules out")
    return settled


def ignored_speakers(order: Order) -> tuple[Mapping[str, str], ...]:
    """A warning if a request has max_speakers without diarize."""
    useless = order.max_speakers is not None and not order.diarize
    return ({"code": "ignored_parameter", "param": declared.MAX_SPEAKERS.name},) if useless else ()


def unknown_members(fields: Fields, known: Collection[str]) -> tuple[Mapping[str, str], ...]:
    """A warning for each member that is not *known*, up to MAX_WARNINGS."""
    unknown = [name for name in fields if name not in known]
    return tuple({"code": "unknown_parameter", "param": name[:100]} for name in unknown[:MAX_WARNINGS])


def model_among(offer: Offer) -> Callable[[Sequence[object]], str | None]:
    """A parser of the model's name. It returns None for a name of other services, which leaves the choice to us."""

    def parse(values: Sequence[object]) -> str | None:
        name = string(values).strip()
        if not offer.has(name):
            raise InvalidValue("unknown_value", offer.unknown_model(name))
        return offer.model_named(name)

    return parse


def targets_among(offer: Offer) -> Callable[[Sequence[object]], tuple[str, ...]]:
    """A parser of the languages into which to translate: a list with commas, a repeated member or a JSON array."""

    def parse(values: Sequence[object]) -> tuple[str, ...]:
        targets: dict[str, None] = {}
        for name in (part.strip() for item in texts(values) for part in item.split(",") if part.strip()):
            language = language_named(name)
            if language is None:
                raise InvalidValue("unknown_value", unknown_language(name))
            if (refusal := offer.target_refusal(language.code)) is not None:
                raise InvalidValue("not_offered", refusal)
            targets[language.code] = None
        if len(targets) > bounds.MAX_TARGETS:
            raise InvalidValue("too_many", f"must be at most {bounds.MAX_TARGETS}, got {len(targets)}")
        return tuple(targets)

    return parse


def with_plan_targets(order: Order, most: int) -> Order:
    """The order. Raises Refused invalid_parameter if it has more targets than the plan's *most*."""
    if len(order.translate_to) > most:
        refusal = f"the plan translates a job into at most {most} languages, got {len(order.translate_to)}"
        raise invalid_member(declared.TRANSLATE_TO.name, "too_many", refusal)
    return order


def _diarize(offer: Offer) -> Callable[[Sequence[object]], bool]:
    def parse(values: Sequence[object]) -> bool:
        if (wanted := boolean(values)) and not offer.speakers:
            raise InvalidValue("not_offered", NOT_INSTALLED)
        return wanted

    return parse


def _task(offer: Offer) -> Callable[[Sequence[object]], str]:
    def parse(values: Sequence[object]) -> str:
        task = one_of(TASKS)(values)
        if task == TRANSLATE and (refusal := offer.translation_refusal) is not None:
            raise InvalidValue("unknown_value", refusal)
        return task

    return parse
