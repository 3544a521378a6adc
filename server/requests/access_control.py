"""Authentication, authorisation and rate limits, checked before each handler.

The order is fixed and documented: key (401), environment (403), rate (429), declared size (413), media type (415). All
checks use the headers alone, so that a refused body is not read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection, Request

from server.accounts.keys import MalformedKey, digest, environment_of
from server.accounts.limits import DAY_S, MONTH_S, Failures, Limits, month_of
from server.accounts.signed import GRANT, read_credential
from server.clock import now_ms
from server.config import LOOPBACK, Config
from server.http.client_addresses import address_of, check_account
from server.http.headers import idempotency_key, limit_headers
from server.http.operation import Auth, Caller, Operation
from server.http.problems import Problem
from server.keyed_limits import RateTable
from server.logs import log
from server.model.accounts import Account, ApiKey, Plan, WindowUse
from server.model.errors import DiskFull, QuotaExceeded, RequestError, StorageBusy
from server.requests.local_owner import LocalOwner
from server.storage.sql.storage import Storage

MAX_FAMILIAR = 10_000  # keys that worked lately; beyond it all are dropped
MONTHLY = frozenset({"transcriptions", "audio_seconds"})  # allowances that are counted by the month
FORM_OVERHEAD = 1_000_000  # bytes of a multipart body that are not its file


@dataclass(slots=True, kw_only=True)
class AccessControl:
    """Checks requests and finds their caller. Requests and wrong keys are counted per minute.

    If several nodes answer requests, they count together. Only requests with Auth.FREE are counted by each node alone,
    because a shared count would cost more than the answer. The keys of an address that sent many wrong ones are refused
    without a look into the database, except for keys that worked lately: their owners may share the address.
    """

    config: Config
    limits: Limits
    storage: Storage
    own_origin: str  # of the server's own pages
    local_owner: LocalOwner = field(init=False)
    _free: RateTable = field(init=False, default_factory=RateTable)  # requests of Auth.FREE, by address
    _refused: Failures = field(init=False)  # keys, by address
    _familiar: set[bytes] = field(init=False, default_factory=set)  # hashes of keys that worked lately

    def __post_init__(self) -> None:
        self.local_owner = LocalOwner(self.config, self.storage)
        self._refused = Failures(what="wrong keys", rates=self.storage.rates)

    async def admit(self, request: Request, operation: Operation) -> Caller:
        """Return the caller, after all checks. Raises RequestError."""
        if operation.auth in (Auth.KEY, Auth.GRANT):
            identified = await self.identify(request, grants=operation.auth is Auth.GRANT)
            caller = await self.count(request, identified)
        elif operation.auth is Auth.OPEN:
            caller = await self.count(request, self._anonymous(request))
        else:
            caller = self._anonymous(request)
            if operation.auth is Auth.FREE:
                limit = self.limits.keyless.free_requests_per_minute
                self._free.hit(caller.address, limit=limit).check()
        try:
            _check_body(request, operation, caller.plan)
            if operation.endpoint.method == "POST" and (key := request.headers.get("idempotency-key")) is not None:
                caller = replace(caller, idempotency_key=idempotency_key(key))  # read even where it is not used
        except RequestError:
            _add_rate_headers(request, caller.window)
            raise
        return caller

    async def identify(self, request: HTTPConnection, *, secret: str | None = None, grants: bool = False) -> Caller:
        """The owner of the request's API key. *secret* is the key if it was not sent as a Bearer token.

        Without a key it is the machine's owner, if the request has the cookie of the page. With *grants* a grant that
        stands for a key is accepted too. Raises RequestError.
        """
        secret = secret or bearer(request.headers)
        if secret is None:
            if (owner := await self.find_owner(request)) is not None:
                return owner
            raise Problem("missing_credentials", "Send an API key as Authorization: Bearer YOUR_KEY.")
        if grants and secret.startswith(GRANT):
            key_hash, _ = read_credential(self.storage.signing_keys, GRANT, secret, now_s=now_ms() / 1000)
            return await self.identify_hash(request, key_hash)
        address = self._address(request)
        return await self._admit_owner(request, address, *await self._look_up(secret, address))

    async def find_owner(self, request: HTTPConnection) -> Caller | None:
        """The machine's owner, if the request has the cookie of the page and nothing speaks against it."""
        hashed = await self.local_owner.key_hash(request)
        if hashed is None:
            return None
        caller = await self.identify_hash(request, hashed)
        return replace(caller, plan=unrationed(caller.require_account()[2]), owner=True)

    async def identify_hash(self, request: HTTPConnection, hashed: bytes) -> Caller:
        """The owner of the API key whose hash a signed credential contains. Raises RequestError."""
        return await self._admit_owner(request, self._address(request), *await self._find_key(hashed))

    async def _admit_owner(self, request: HTTPConnection, address: str, key: ApiKey, account: Account) -> Caller:
        """The owner of a working key. Raises Problem environment_mismatch, too_many_connections."""
        state = request.scope["state"]
        environment: str = state["environment"]
        state["account"] = account.id
        if key.environment != environment:
            raise Problem(
                "environment_mismatch",
                f"This is a {key.environment} key, and this is the {environment} address. Use the key's own address.",
            )
        check_account(request, account.id)
        await self._touch(key)
        plan = self.limits.plan(account.plan, account.limits, sandbox=environment == "sandbox")
        return Caller(environment, address, account, key, plan)

    async def _look_up(self, secret: str, address: str) -> tuple[ApiKey, Account]:
        """The valid key *secret* and its account. Raises MalformedKey, Problem invalid_key.

        Raises RateLimited for an address that sent too many wrong keys lately.
        """
        hashed, limit = digest(secret), self.limits.keyless.refused_keys_per_minute
        familiar = hashed in self._familiar
        if not familiar:
            self._refused.look(address, limit=limit).check()
        try:
            if not familiar:
                environment_of(secret)
            found = await self._find_key(hashed)
        except (MalformedKey, Problem):
            self._familiar.discard(hashed)
            window = await self._refused.count(address, limit=limit)
            if not familiar:
                window.check()
            raise
        if len(self._familiar) >= MAX_FAMILIAR:
            self._familiar.clear()
        self._familiar.add(hashed)
        return found

    async def _find_key(self, hashed: bytes) -> tuple[ApiKey, Account]:
        found = await self.storage.accounts.by_hash(hashed)
        if found is None or not _is_valid(found[0], now_ms()):
            raise Problem("invalid_key", "This API key is unknown, revoked or expired. Use another one.")
        return found

    def check_page(self, connection: HTTPConnection, *, signs_up: bool = False) -> None:
        """Refuse requests from web pages that may not use this server, or not sign up.

        Browsers send some requests and open WebSockets for pages of any origin without asking the server first, and
        name the origin in a header. The server's own pages come from the host that they connect to. A stranger could
        let a name of his own lead to this machine, so that host must be a number, "localhost", or a name from the
        settings. Raises Problem origin_not_allowed.
        """
        origin = connection.headers.get("origin")
        origins = self.config.signup_origins if signs_up else self.config.cors_origins
        if origin in (None, self.own_origin) or "*" in origins or origin in origins:
            return
        if not _is_own(origin, connection.headers.get("host")):
            raise Problem("origin_not_allowed", "Pages of this origin may not use this server. See CORS_ORIGINS.")

    async def limit_headers(self, caller: Caller, refusal: Exception | None) -> Mapping[str, str]:
        """The RateLimit headers of an answer to *caller*; none if its requests are not counted."""
        if caller.window is None:
            return {}
        if isinstance(refusal, QuotaExceeded):
            return limit_headers([caller.window, _used_up(refusal)], now=now_ms())
        windows = [caller.window]
        limit = caller.plan.transcriptions_per_month if caller.plan else None
        if caller.account is not None and limit is not None:
            month = month_of(now_ms())
            try:
                [used] = await self.storage.counters.amounts_used(caller.account.id, [("transcriptions", month.name)])
            except StorageBusy:  # the answer is more important than this header
                return limit_headers(windows, now=now_ms())
            windows.append(WindowUse("transcriptions", limit, used, month.window_s, month.resets_at))
        return limit_headers(windows, now=now_ms())

    async def count(self, request: HTTPConnection, caller: Caller) -> Caller:
        """Count a request of the caller within its minute. Raises RateLimited."""
        if caller.owner:
            return caller
        if caller.key is not None and caller.plan is not None:
            subject = f"{caller.key.account} in {caller.environment}"
            limit = caller.plan.requests_per_minute
        else:
            subject, limit = caller.address, self.limits.keyless.requests_per_minute
        window = await self.storage.rates.hit(subject, limit=limit)
        if not window.allowed:
            _add_rate_headers(request, window)
        window.check()
        return replace(caller, window=window)

    def _anonymous(self, request: HTTPConnection) -> Caller:
        return Caller(request.scope["state"]["environment"], self._address(request))

    def _address(self, request: HTTPConnection) -> str:
        return address_of(request.scope, self.config.trusted_proxies)

    async def _touch(self, key: ApiKey) -> None:
        try:
            await self.storage.accounts.touch(key.id, now_ms())
        except (DiskFull, StorageBusy) as error:
            # The request itself may not need to write.
            log.warning("last use of a key not written: %s", error)


def unrationed(plan: Plan) -> Plan:
    """The plan without allowances. What one file may have remains: it protects the machine."""
    return replace(
        plan,
        estimates_per_day=None,
        transcriptions_per_month=None,
        audio_hours_per_month=None,
        active_jobs=None,
        live_sessions=None,
    )


def origin_of(url: str) -> str:
    """The origin of pages below *url*, as browsers write it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _is_own(origin: str, host: str | None) -> bool:
    """Whether *origin* is the requested *host*: an IP address, or a name that only this machine has."""
    try:
        page = urlsplit(origin)
        if page.hostname not in LOOPBACK:
            ip_address(page.hostname or "")
    except ValueError:
        return False
    return page.netloc == host


def _add_rate_headers(request: HTTPConnection, window: WindowUse | None) -> None:
    """Add the RateLimit headers to a refusal before the handler. Other answers get them later."""
    if window is not None:
        request.state.limit_headers = limit_headers([window], now=now_ms())


def bearer(headers: Mapping[str, str]) -> str | None:
    """The credential in the Authorization header; None if there is none. Deepgram's clients write Token for Bearer."""
    scheme, _, credential = headers.get("authorization", "").partition(" ")
    return credential.strip() if scheme.lower() in ("bearer", "token") and credential.strip() else None


def _used_up(refusal: QuotaExceeded) -> WindowUse:
    """The window of the allowance that is used up."""
    window_s = MONTH_S if refusal.name in MONTHLY else DAY_S
    return WindowUse(refusal.name, refusal.limit, refusal.used, window_s, refusal.resets_at, allowed=False)


def _is_valid(key: ApiKey, now: int) -> bool:
    return key.revoked_at is None and (key.expires_at is None or key.expires_at > now)


def _check_body(request: Request, operation: Operation, plan: Plan | None) -> None:
    if not operation.media_types:
        return
    most = operation.max_body if operation.max_body is not None or plan is None else plan.upload_bytes + FORM_OVERHEAD
    declared = request.headers.get("content-length", "")
    if most is not None and declared.isdecimal() and int(declared) > most:
        limit = most if operation.max_body is not None else most - FORM_OVERHEAD
        raise Problem(
            "payload_too_large",
            f"The body may have at most {limit} bytes.",
            headers={"Connection": "close"},
            members={"limit": limit, "actual": int(declared)},
        )
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", ""):
        raise Problem(
            "unsupported_encoding", "Send the body without Content-Encoding.", headers={"Accept-Encoding": "identity"}
        )
    given = request.headers.get("content-type")
    if given is None and not operation.body_required:
        return
    media_type = (given or "").partition(";")[0].strip().lower()
    if media_type not in operation.media_types:
        accepted = ", ".join(operation.media_types)
        raise Problem("unsupported_media_type", f"Send {accepted}.", headers={"Accept": accepted})
