"""What arrived with a request that may become a job."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An uploaded file that is stored."""

    blob: str
    bytes: int
    sha256: str | None  # if it was asked for
    filename: str | None  # the client's name for it, cleaned; only for people


@dataclass(slots=True)
class Received:
    """The content of a body. What is stored of it is deleted with its request unless *keep* was set."""

    job_id: str
    fields: dict[str, list[object]] = field(default_factory=dict)
    field_bytes: int = 0
    file: StoredFile | None = None  # None: the audio is at an address, or comes later
    begun: bool = False  # whether anything may be stored, also where the request ended before it was received in full
    keep: bool = False
