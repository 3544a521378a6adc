"""What arrived with a request that may become a job."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An uploaded file that is stored."""

    blob: str
    bytes: int
    sha256: str | None  # None unless the request needs a fingerprint
    filename: str | None  # the client's name for it, cleaned; only for people


@dataclass(slots=True)
class Received:
    """The content of a body. Its stored files are deleted at the end of the request unless *keep* is set."""

    job_id: str
    fields: dict[str, list[object]] = field(default_factory=dict)
    field_bytes: int = 0
    file: StoredFile | None = None  # None: the audio is at an address, or comes later
    begun: bool = False  # whether files may be stored, even if the body did not arrive in full
    keep: bool = False
