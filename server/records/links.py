"""Makes every absolute URL in answers. It begins with the configured public address, never with that of a header."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from server.accounts.signed import Scope, check_link, link_query, make_channel_token, make_token
from server.clock import now_ms
from server.config import LOOPBACK
from server.model.accounts import Channel, SigningKeys
from server.model.jobs import Job

DOWNLOAD_TTL_S = 3600
WEBHOOK_TTL_S = 24 * 3600
MAX_TTL_S = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Links:
    """Builds the URLs of jobs, and signs those that need no key."""

    public_base_url: str
    keys: SigningKeys

    def base(self, environment: str) -> str:
        return self.public_base_url + ("/sandbox" if environment == "sandbox" else "")

    def job(self, job: Job) -> str:
        return f"{self.base(job.environment)}/v1/jobs/{job.id}"

    def job_path(self, job: Job) -> str:
        """The path of the job's URL, for Location headers. It works under any host name of the server."""
        return urlsplit(self.job(job)).path

    def events(self, job: Job) -> str:
        return f"{self.job(job)}/events"

    def channel(self, channel: Channel, view: str) -> str:
        """The address of a channel's *view* (events, live.vtt). It needs no key, and works while the channel exists."""
        token = make_channel_token(self.keys, channel.id)
        return f"{self.base(channel.environment)}/v1/channels/{channel.id}/{view}?token={token}"

    def channel_page(self, channel: Channel) -> str:
        """The page with the channel's captions. The token follows a #, which browsers never send to a server."""
        token = make_channel_token(self.keys, channel.id)
        return f"{self.base(channel.environment)}/live/{channel.id}#token={token}"

    @property
    def reachable(self) -> bool:
        """Whether other machines can open these addresses."""
        return urlsplit(self.public_base_url).hostname not in LOOPBACK

    def page(self, job: Job, token: str) -> str:
        """The page with a live session's captions, for whoever has its address. See channel_page()."""
        return f"{self.base(job.environment)}/live/{job.id}#token={token}"

    def ingest(self, job: Job) -> str:
        """The address for a live job's audio in HTTP requests."""
        return f"{self.job(job)}/audio"

    def ingest_socket(self, job: Job, *, expires_s: int) -> str:
        """The WebSocket's address for a live job's audio. It needs no key until the second *expires_s* (since 1970)."""
        token = make_token(self.keys, job_id=job.id, scope=Scope.INGEST, expires_s=expires_s)
        return f"ws{self.ingest(job).removeprefix('http')}?token={token}"

    def output(self, job: Job, name: str, *, ttl_s: int = DOWNLOAD_TTL_S) -> str:
        """A link to a finished output. It needs no key, for *ttl_s* seconds from now."""
        query = link_query(self.keys, output_path(job.id, name), expires_s=link_expiry(ttl_s))
        return f"{self.job(job)}/outputs/{name}?{query}"

    def check_output(self, job_id: str, name: str, query: Mapping[str, str]) -> None:
        """Raise Refused invalid_signature or url_expired unless output() made this link and it is still valid."""
        exp, kid, sig = (query.get(part, "") for part in ("exp", "kid", "sig"))
        check_link(self.keys, output_path(job_id, name), exp=exp, kid=kid, sig=sig, now_s=now_ms() / 1000)


def link_expiry(ttl_s: int) -> int:
    """The second (since 1970) at which a link for *ttl_s* seconds expires."""
    return -(-now_ms() // 1000) + ttl_s


def output_path(job_id: str, name: str) -> str:
    """The signed part of a link: the path below the base URL, so that a proxy's prefix does not matter."""
    return f"/v1/jobs/{job_id}/outputs/{name}"
