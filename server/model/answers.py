"""The bodies of answers, each declared once. The server builds them, and /openapi.json has their JSON Schemas.

Docstrings and Meta are the descriptions there. A member whose type allows UNSET may be absent. The members are sent in
the order in which they stand here. The answers of dialects are in the dialects.
"""

from functools import cache
from typing import Annotated, Any, Literal, NotRequired, Self, TypeAlias, TypedDict

from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.structs import fields

from pipeline.documents.service_v1 import Found, Paragraph, ServiceV1, Speaker, SpokenLanguage, Word
from pipeline.recognition.engine import TASKS
from server.clock import iso
from server.model import bounds
from server.model.jobs import JOB_CODES, State


def note(text: str) -> Meta:
    return Meta(description=text)


def one_of(*values: object) -> Meta:
    return Meta(extra_json_schema={"enum": [*values]})


Instant: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Uri: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "uri"})]
Whole: TypeAlias = Annotated[int, Meta(ge=0)]
Environment: TypeAlias = Literal["production", "sandbox"]
Retention: TypeAlias = Annotated[str | None, one_of(None, *bounds.RETENTIONS)]
Format: TypeAlias = Annotated[str, one_of(*bounds.FORMATS)]
Output: TypeAlias = Annotated[str, Meta(pattern=rf"^({'|'.join(bounds.FORMATS)})(\.[a-z]{{2,3}})?$")]
WebhookEvent: TypeAlias = Annotated[str, one_of(*bounds.WEBHOOK_EVENTS)]
Object: TypeAlias = dict[str, Any]
TextOptions: TypeAlias = Annotated[Object, Meta(extra_json_schema={"$ref": "#/components/schemas/TextOptions"})]


class Body(Struct):
    @classmethod
    def of(cls, value: object, /, **given: Any) -> Self:
        """Make the answer of *given* members and, for all others, the attributes of *value* with their names.

        Instants (ms since 1970 UTC) become text. A member that may be absent is absent if the attribute is None.
        """
        for name, required in _members(cls):
            if name not in given and (required or hasattr(value, name)):
                found = getattr(value, name)
                if found is not None or required:
                    is_instant = isinstance(found, int) and name.rpartition("_")[2] == "at"
                    given[name] = iso(found) if is_instant else found
        return cls(**given)


@cache
def _members(cls: type[Body]) -> tuple[tuple[str, bool], ...]:
    """The names of the members, and whether each is always there."""
    return tuple((member.name, member.required) for member in fields(cls))


class ListBody(Body, tag_field="object", tag="list"):
    """Begins with `"object": "list"`."""


# --- errors --------------------------------------------------------------------------------------------------------


class Fault(Body):
    """A member of a request that cannot be used."""

    param: str
    pointer: str
    code: str
    message: str


class Problem(Body):
    """Why a request was refused (RFC 9457)."""

    type: Uri
    title: str
    status: int
    detail: str
    instance: str
    code: str
    request_id: str
    limit: float | UnsetType = UNSET
    used: float | UnsetType = UNSET
    actual: float | UnsetType = UNSET
    window: str | UnsetType = UNSET
    violated_policies: list[str] | UnsetType = field(default=UNSET, name="violated-policies")
    resets_at: Instant | UnsetType = UNSET
    errors: list[Fault] | UnsetType = UNSET


class Warned(TypedDict):
    """What a client should know about a request that was accepted all the same."""

    code: str
    param: NotRequired[str]
    message: NotRequired[str]


# --- jobs ----------------------------------------------------------------------------------------------------------


class Source(Body):
    type: Literal["upload", "url", "live"]
    filename: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    bytes: Whole | UnsetType = UNSET
    format: str | UnsetType = UNSET


class JobError(Body):
    code: Annotated[str, one_of(*JOB_CODES)]
    message: str
    retryable: bool
    param: str | None


class LiveState(Body, kw_only=True):
    encoding: Annotated[str, one_of(*bounds.ENCODINGS)]
    sample_rate: Whole | UnsetType = UNSET
    channels: Whole | UnsetType = UNSET
    interim_results: bool
    endpointing_ms: Whole
    max_utterance_s: float
    latency: Annotated[str | None, one_of(None, *bounds.LATENCY_NAMES)]
    endpointing: Annotated[str, one_of(*bounds.ENDPOINTING)]
    eagerness: Annotated[str | None, one_of(None, *bounds.EAGERNESS_NAMES)]
    record: bool
    channel: str | None
    separate: Annotated[Literal[True] | UnsetType, note("Each channel is recognised separately")] = UNSET
    received_bytes: Annotated[Whole | None, note("Where the next writer goes on")]
    received_seconds: float | None
    settled_bytes: Annotated[Whole | None, note("What even a restart of the server would not need again")]
    lag_ms: Annotated[Whole | None, note("From the last final word's sound to its decision")]
    audio_url: Annotated[Uri | UnsetType, note("The recording, once completed")] = UNSET
    ingest_ws: Annotated[Uri | UnsetType, note("Only in the answer of POST /v1/live")] = UNSET
    ingest_http: Uri | UnsetType = UNSET
    events_url: Uri | UnsetType = UNSET
    expires_at: Annotated[Instant | UnsetType, note("Until when ingest_ws opens")] = UNSET


class Match(Body):
    start: float
    end: float
    before: str
    text: str
    after: str


class Job(Body, kw_only=True):
    job_id: Annotated[str, Meta(pattern="^job_[0-9A-Za-z]{26}$")]
    object: Literal["job"]
    status: State
    environment: Environment
    created_at: Instant
    started_at: Instant | None
    finished_at: Instant | None
    expires_at: Instant | None
    cancel_requested_at: Instant | None
    progress: Annotated[float, Meta(ge=0, le=1)]
    stage: str | None
    attempt: Whole
    source: Source
    output_formats: list[Format]
    translate_to: Annotated[list[str], note("Languages into which what is said is translated")]
    word_timestamps: bool
    duration: float | None
    task: Annotated[str, one_of(*TASKS)]
    language: Annotated[str | None, note("What is spoken most, also where the text is a translation")]
    language_probability: float | None
    languages: Annotated[
        list[SpokenLanguage] | UnsetType, note("Once completed, those that were found, most speech first")
    ] = UNSET
    model: str | None
    engine: str | None
    formats: Annotated[dict[Output, Uri], note("srt.de is the German translation of srt")]
    error: JobError | None
    metadata: Annotated[
        dict[str, Annotated[str, Meta(max_length=bounds.MAX_METADATA_CHARS)]], Meta(max_length=bounds.MAX_METADATA_KEYS)
    ]
    warnings: list[Warned] | UnsetType = UNSET
    text_options: (
        Annotated[Object, Meta(extra_json_schema={"$ref": "#/components/schemas/TextOptions"})] | UnsetType
    ) = UNSET
    retention: Retention
    erased_at: Annotated[Instant | None, note("When text, words and outputs were erased")]
    events_url: Uri
    revision: Annotated[Whole, note("Of the corrections by people; 0: as recognised")] = 0
    corrected: Annotated[bool, note("Whether people corrected it")] = False
    matches: Annotated[list[Match] | UnsetType, note("In lists with q: where it is said")] = UNSET
    audio_url: Annotated[Uri | UnsetType, note("The audio, once completed, when record was true; not in lists")] = UNSET
    schema: Annotated[Literal["service_v1"] | UnsetType, note("Once completed, when json was asked for")] = UNSET
    live: LiveState | UnsetType = UNSET
    speakers: Annotated[list[Speaker] | UnsetType, note("Once completed, when diarize was true")] = UNSET
    text: str | UnsetType | None = UNSET
    paragraphs: Annotated[list[Paragraph] | UnsetType, note("Once completed, when paragraphs was true")] = UNSET
    search: Annotated[list[Found] | UnsetType, note("Once completed, when search was given")] = UNSET
    words: Annotated[list[Word] | UnsetType, note("Once completed, when word_timestamps was true")] = UNSET
    outputs: Annotated[
        dict[Output, str] | UnsetType, note("The files themselves, in place of links, when retention is none")
    ] = UNSET


class JobList(ListBody):
    data: list[Job]
    has_more: bool
    next_cursor: str | None


class MadeCorrection(Body):
    revision: Whole
    at: Instant
    by: Annotated[str, note("The name of the key, or of the link")]
    changes: list[Object]
    reverts: Annotated[int | UnsetType, note("The revision that it took back")] = UNSET


class CorrectionList(ListBody):
    data: list[MadeCorrection]
    has_more: bool
    next_cursor: str | None


class EditableWords(Body):
    revision: Whole
    speakers: Annotated[dict[str, str], note("What documents call each speaker")]
    words: Annotated[list[Object], note("Each with `index`, and `last` where several were changed together")]
    audio: Annotated[bool, note("Whether the audio was kept, to be played")]


class EditLink(Body):
    url: Uri
    token: str
    expires_at: Instant


class Notice(Body):
    """The body of a webhook, and of a stream's terminal event, which also has the job's id and the event's number."""

    type: WebhookEvent
    timestamp: Instant
    data: Job
    test: Literal[True] | UnsetType = UNSET
    job_id: str | UnsetType = UNSET
    seq: Whole | UnsetType = UNSET


class Received(Body):
    job_id: str
    status: State
    received_bytes: Whole | None
    received_seconds: float | None
    settled_bytes: Whole | None
    lag_ms: Whole | None


class Channel(Body, tag_field="object", tag="channel"):
    channel_id: str
    name: str
    created_at: Instant
    job_id: Annotated[str | None, note("The newest live session that named the channel")]
    page_url: Uri
    events_url: Uri
    vtt_url: Uri
    reachable: Annotated[bool, note("Whether other machines can open these addresses")]


class ChannelList(ListBody):
    data: list[Channel]


# --- accounts ------------------------------------------------------------------------------------------------------


class NewKey(Body):
    key_id: str
    key: Annotated[str, note("Shown once")]
    prefix: str
    name: str | None
    plan: str
    environment: Environment
    account_id: str
    retention: Retention
    created_at: Instant
    webhook_secret: Annotated[str | UnsetType, note("Shown once, with the account's first key")] = UNSET


class Key(Body):
    key_id: str
    prefix: str
    last4: str
    name: str | None
    environment: Environment
    retention: Retention
    created_at: Instant
    last_used_at: Instant | None
    expires_at: Instant | None
    revoked_at: Instant | None


class KeyList(ListBody):
    data: list[Key]


class Used(Body):
    """An allowance of the plan. Its limit is null if there is none."""

    name: str
    limit: Whole | None
    used: Whole
    remaining: Whole | None
    resets_at: Instant


class Usage(Body):
    plan: str
    owner: bool  # of the machine, by the page's cookie
    limits: Object
    usage: list[Used]


class Token(Body):
    token: str
    expires_at: Annotated[Instant | None, note("null: it counts from the end of the job, which runs")]
    page_url: Annotated[Uri | None, note("The page with a live session's captions; null for other jobs and for ingest")]
    reachable: Annotated[bool, note("Whether other machines can open page_url")]


class WebhookSecret(Body):
    created_at: Instant
    previous_expires_at: Instant | None


class NewWebhookSecret(Body):
    webhook_secret: Annotated[str, note("Shown once")]
    created_at: Instant
    previous_expires_at: Instant | None


# --- webhooks ------------------------------------------------------------------------------------------------------


class WebhookTest(Body):
    delivered: bool
    status_code: Whole | None
    duration_ms: Whole
    error: str | None
    webhook_id: str


class Attempt(Body):
    n: Whole
    at: Instant
    status_code: Whole | None
    duration_ms: Whole
    error: str | None
    next_attempt_at: Instant | None


class Delivery(Body):
    delivery_id: str
    webhook_id: str
    event: WebhookEvent
    url: str
    state: Literal["pending", "delivered", "failed", "disabled"]
    attempts: list[Attempt]


class DeliveryList(ListBody):
    data: list[Delivery]


# --- estimates, which estimator/ makes -----------------------------------------------------------------------------


class EstimatedModel(TypedDict):
    requested_id: str
    status: Literal["priced", "partial", "unpriced", "unknown_model"]
    cost_usd: Annotated[Object | None, note("low, expected, high: decimal strings")]
    multiplied_usd: Object | None


class EstimatesLeft(TypedDict):
    remaining: Whole | None
    resets_at: Instant


class Estimate(TypedDict):
    object: Literal["estimate"]
    id: Annotated[str, Meta(pattern="^est_[0-9A-Z]{26}$")]
    created_at: Instant
    priced_at: Instant
    currency: Literal["USD"]
    inputs: Object
    price_source: Object
    models: list[EstimatedModel]
    cheapest: Object | None
    ranking: list[str]
    ranking_overlaps: list[list[str]]
    hosted_transcription: Annotated[list[Object] | None, note("The cheapest first; null without audio_seconds")]
    unknown_models: list[str]
    warnings: list[Object]
    assumptions_version: str
    assumptions: list[Object]
    usage: EstimatesLeft


class CatalogueModel(TypedDict):
    id: str
    provider: str
    cluster: str


class EstimateModelList(TypedDict):
    object: Literal["list"]
    price_source: Object
    priced_at: Instant
    data: list[CatalogueModel]


# --- the service ---------------------------------------------------------------------------------------------------


class KnownAudio(Body):
    extension: str
    mime: str


class OutputFile(Body):
    name: str
    extension: str
    mime: str


class FormatList(ListBody):
    data: list[KnownAudio]
    outputs: list[OutputFile]


class HeardBy(Body):
    name: str
    languages: Annotated[list[str], note("All that it knows")]
    hears: Annotated[list[str], note("The languages that it transcribes if a request names no model")]
    translates: Annotated[bool, note("Into English")]


class Health(Body):
    status: str
    engine: str | UnsetType = UNSET
    model: Annotated[str | UnsetType, note("The default model")] = UNSET
    models: Annotated[list[HeardBy] | UnsetType, note("All models that requests may name")] = UNSET
    languages: Annotated[list[str] | UnsetType, note("The languages of the models")] = UNSET
    speakers: Annotated[bool | UnsetType, note("Whether speakers can be labelled by their voices")] = UNSET
    endpointing: Annotated[list[str] | UnsetType, note("What may end a turn of a live session")] = UNSET
    translates_to: Annotated[list[str] | UnsetType, note("The languages of translate_to; * is any")] = UNSET
    bundled: Annotated[bool | UnsetType, note("Only models that come with the installation are used")] = UNSET


ANSWERS: tuple[type, ...] = (
    Problem, JobList, Notice, Received, ChannelList, NewKey, KeyList, Usage, Token, WebhookSecret, NewWebhookSecret,
    WebhookTest, DeliveryList, MadeCorrection, CorrectionList, EditableWords, EditLink, Estimate, EstimateModelList,
    FormatList, Health, ServiceV1,
)  # fmt: skip
"""Their schemas, and those of the types in them, are components of /openapi.json."""
