"""The routes of an account: keys, usage, stream tokens and webhook secrets."""

import hmac
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from server.accounts.keys import Issued, issue_key, issue_webhook_secret, open_account
from server.accounts.limits import Calendar, day_of, month_of
from server.accounts.signed import Scope, make_token, repeatable_chance
from server.clock import iso, iso_or_none, now_ms
from server.http.bodies import body_of, json_object
from server.http.client_addresses import anonymous_subject
from server.http.openapi import ref
from server.http.operation import Answer, Auth, Caller, Endpoint, Operation, json_body, json_response
from server.http.problems import Problem
from server.model import answers, bounds
from server.model.accounts import SIGNUP_PLAN, TRANSLATED_CHARACTERS, Account, ApiKey, Quota
from server.model.errors import IdempotencyReused
from server.model.jobs import IdempotencyKey
from server.parsing.members import members_of, one_of, string, text_up_to, whole_in
from server.requests.access_control import bearer
from server.requests.request import IDEMPOTENCY_KEY, RouteGroup, idempotency_key_of, own_job
from server.routes.estimates import estimates_of

MAX_BODY = 10_000
MAX_NAME_CHARS = 100
OVERLAP_S = range(604_801)
WEBHOOK_OVERLAP_S = 86_400
TOKEN_TTL_S = 600


class Accounts(RouteGroup):
    """Handlers for keys, usage, tokens and webhook secrets."""

    tag = "account"

    def operations(self) -> list[Operation]:
        return [
            Operation(
                Endpoint("POST", "/v1/keys", self.create_key, "createKey"),
                auth=Auth.OPEN,
                summary="Get an API key",
                description="Free and without a payment card. With a key, the new one joins the same account, which "
                "may have 20 that work. A sandbox key makes sandbox keys.",
                **json_body("KeyRequest", most=MAX_BODY, example={"name": "laptop"}),
                parameters=(IDEMPOTENCY_KEY,),
                answers={201: Answer("The key, shown this once", ref("NewKey"), headers=("Idempotent-Replayed",))},
                codes=(
                    "signup_closed",
                    "origin_not_allowed",
                    "quota_exceeded",
                    "invalid_key",
                    "environment_mismatch",
                    "idempotency_key_reused",
                ),
            ),
            Operation(
                Endpoint("GET", "/v1/keys", self.list_keys, "listKeys"),
                summary="List the account's keys, without their secrets",
                answers={200: Answer("The keys", ref("KeyList"))},
            ),
            Operation(
                Endpoint("DELETE", "/v1/keys/{key_id}", self.revoke_key, "revokeKey"),
                summary="Revoke a key",
                answers={204: Answer("It no longer works")},
            ),
            Operation(
                Endpoint("POST", "/v1/keys/{key_id}/rotate", self.rotate_key, "rotateKey"),
                summary="Replace a key",
                **json_body("RotateRequest", most=MAX_BODY, example={"overlap_seconds": 3600}),
                answers={201: Answer("The new key, shown this once", ref("NewKey"))},
                codes=("quota_exceeded",),
            ),
            Operation(
                Endpoint("GET", "/v1/usage", self.usage, "getUsage"),
                summary="What the plan allows and what is used",
                answers={200: Answer("The account's standing", ref("Usage"))},
            ),
            Operation(
                Endpoint("POST", "/v1/tokens", self.create_token, "createToken"),
                summary="Make a short-lived token for one job's stream",
                description="For EventSource and browser WebSockets, which cannot send an Authorization header.",
                **json_body(
                    "TokenRequest",
                    most=MAX_BODY,
                    example={"job_id": "job_01JD4W2M8Q7Z5K3N9V6B1XTRGH", "ttl_seconds": 600},
                    required=True,
                ),
                answers={201: Answer("The token", ref("Token"))},
                codes=("job_not_found",),
            ),
            Operation(
                Endpoint("GET", "/v1/webhook-secret", self.webhook_secret, "getWebhookSecret"),
                tag="webhooks",
                summary="When the webhook secret was made; never the secret",
                answers={200: Answer("Its dates", ref("WebhookSecret"))},
            ),
            Operation(
                Endpoint("POST", "/v1/webhook-secret/rotate", self.rotate_webhook_secret, "rotateWebhookSecret"),
                tag="webhooks",
                summary="Replace the webhook secret",
                **json_body("RotateRequest", most=MAX_BODY, example={"overlap_seconds": 86_400}),
                answers={201: Answer("The new secret, shown this once", ref("NewWebhookSecret"))},
            ),
        ]

    # --- keys ----------------------------------------------------------------------------------------------------

    async def create_key(self, request: Request, caller: Caller) -> Response:
        credential = bearer(request.headers)
        owner = None
        if credential is not None and not self._is_signup_token(credential):
            owner = await self.parts.access.identify(request)
        elif credential is None:
            owner = await self.parts.access.find_owner(request)
        if owner is None:
            self.parts.access.check_page(request, signs_up=True)
            self._check_signup(credential)
        body = json_object(await body_of(request, most=MAX_BODY))
        wanted = _key_request(body, default=caller.environment)
        if owner is not None:
            account = owner.require_account()[0]
            if owner.environment == "sandbox" != wanted["environment"]:
                raise Problem("environment_mismatch", "a sandbox key makes sandbox keys only")
            return await self._add_key(account, wanted, idempotency_key_of(request, caller, owner))
        await self._count_signup(caller)
        account, issued = await open_account(self.parts.storage.accounts, plan=SIGNUP_PLAN, **wanted)
        secret = account.webhook_secret_of(wanted["environment"]).current
        return json_response(new_key(account, issued, webhook_secret=secret), 201)

    async def _add_key(self, account: Account, wanted: Mapping[str, Any], again: IdempotencyKey | None) -> Response:
        """Make the key that an account wants, or show the one that the same request has made before."""
        chance = None
        if again is not None:
            chance = repeatable_chance(self.parts.keys, f"{again.account}\n{again.path}\n{again.key}")
        issued = issue_key(account.id, **wanted, chance=chance)
        key = await self.parts.storage.accounts.add_key(issued.key)
        if key.id == issued.key.id:
            return json_response(new_key(account, issued), 201)
        same = {"name": key.name, "environment": key.environment, "retention": key.retention} == wanted
        if not same or key.revoked_at is not None or key.expires_at is not None:
            raise IdempotencyReused("this Idempotency-Key was used before for another key, or for one that was revoked")
        return json_response(new_key(account, replace(issued, key=key)), 201, headers={"Idempotent-Replayed": "true"})

    def _is_signup_token(self, credential: str) -> bool:
        token = self.parts.config.signup_token
        return token is not None and hmac.compare_digest(credential.encode(), token.encode())

    def _check_signup(self, credential: str | None) -> None:
        if self.parts.config.signup == "off":
            raise Problem("signup_closed", "this server's operator gives out the keys")
        if self.parts.config.signup == "token" and credential is None:
            raise Problem("signup_closed", "send this server's sign-up token as Authorization: Bearer ...")

    async def _count_signup(self, caller: Caller) -> None:
        day = day_of(now_ms())
        limit = self.parts.limits.keyless.signups_per_day
        quota = Quota(name="signups", window=day.name, limit=limit, amount=1, resets_at=day.resets_at)
        subject = anonymous_subject(self.parts.keys.secrets[self.parts.keys.current], caller.address, day=day.name)
        count = await self.parts.storage.counters.spend(subject, quota)
        count.check("signups")

    async def list_keys(self, _request: Request, caller: Caller) -> Response:
        keys = [answers.Key.of(key, key_id=key.id) for key in await self._keys(caller)]
        return json_response(answers.KeyList(keys))

    async def revoke_key(self, request: Request, caller: Caller) -> Response:
        key = await self._key(request, caller)
        if not await self.parts.storage.accounts.revoke(key.account, key.id, at=now_ms()):
            raise _no_such_key()
        return Response(status_code=204)

    async def rotate_key(self, request: Request, caller: Caller) -> Response:
        overlap_s = _overlap_s(json_object(await body_of(request, most=MAX_BODY)), default=0)
        account = caller.require_account()[0]
        old = await self._key(request, caller)
        issued = issue_key(account.id, environment=old.environment, name=old.name, retention=old.retention)
        if not await self.parts.storage.accounts.rotate(
            account.id, old.id, new=issued.key, old_expires_at=now_ms() + overlap_s * 1000
        ):
            raise _no_such_key()
        return json_response(new_key(account, issued), 201)

    async def _keys(self, caller: Caller) -> list[ApiKey]:
        """The account's keys that *caller* may see and revoke. A sandbox key sees only sandbox keys."""
        keys = await self.parts.storage.accounts.keys(caller.account_id)
        return [key for key in keys if caller.environment in ("production", key.environment)]

    async def _key(self, request: Request, caller: Caller) -> ApiKey:
        """The key that the path names. Raises Problem key_not_found."""
        key_id = request.path_params["key_id"]
        for key in await self._keys(caller):
            if key.id == key_id:
                return key
        raise _no_such_key()

    # --- usage and tokens ----------------------------------------------------------------------------------------

    async def usage(self, _request: Request, caller: Caller) -> Response:
        account, _, plan = caller.require_account()
        now = now_ms()
        month, day = month_of(now), day_of(now)
        rows: list[tuple[str, Calendar, int | None]] = [
            ("transcriptions", month, plan.transcriptions_per_month),
            ("audio_seconds", month, plan.audio_seconds_per_month),
            (TRANSLATED_CHARACTERS, month, None),
            ("estimates", day, plan.estimates_per_day),
        ]
        windows = [(name, window.name) for name, window, _ in rows]
        # In the sandbox, only estimates are counted.
        used = await self.parts.storage.counters.amounts_used(estimates_of(account.id, caller.environment), windows)
        shown = [_usage(*row, count) for row, count in zip(rows, used, strict=True)]
        limits = {number.name: getattr(plan, number.name) for number in fields(plan) if number.name != "weight"}
        return json_response(answers.Usage(account.plan, caller.owner, limits, shown))

    async def create_token(self, request: Request, caller: Caller) -> Response:
        job_id, scope, ttl_s, after_end_s = _token_request(json_object(await body_of(request, most=MAX_BODY)))
        job = await own_job(self.parts.storage.jobs, caller, job_id)
        if after_end_s is None:
            ends_at: int | None = (now_ms() // 1000 + ttl_s) * 1000
        else:
            ends_at = None if job.finished_at is None else job.finished_at + after_end_s * 1000
        expires_s = None if ends_at is None else ends_at // 1000
        token = make_token(self.parts.keys, job_id=job.id, scope=scope, expires_s=expires_s, after_end_s=after_end_s)
        links, shown = self.parts.links, job.order.live is not None and scope is Scope.EVENTS
        page = links.page(job, token) if shown else None
        return json_response(answers.Token(token, iso_or_none(ends_at), page, links.reachable), 201)

    # --- webhook secrets -----------------------------------------------------------------------------------------

    async def webhook_secret(self, _request: Request, caller: Caller) -> Response:
        secret = caller.require_account()[0].webhook_secret_of(caller.environment)
        return json_response(answers.WebhookSecret.of(secret))

    async def rotate_webhook_secret(self, request: Request, caller: Caller) -> Response:
        overlap_s = _overlap_s(json_object(await body_of(request, most=MAX_BODY)), default=WEBHOOK_OVERLAP_S)
        account, fresh = caller.require_account()[0], issue_webhook_secret()
        expires_at = fresh.created_at + overlap_s * 1000
        new = replace(
            fresh, previous=account.webhook_secret_of(caller.environment).current, previous_expires_at=expires_at
        )
        await self.parts.storage.accounts.rotate_webhook_secret(account.id, caller.environment, new)
        return json_response(answers.NewWebhookSecret.of(new, webhook_secret=new.current), 201)


def new_key(account: Account, issued: Issued, **more: str) -> answers.NewKey:
    """The body of an answer with a new key and its secret."""
    key = issued.key
    return answers.NewKey.of(key, key_id=key.id, key=issued.secret, plan=account.plan, account_id=account.id, **more)


def _usage(name: str, window: Calendar, limit: int | None, used: int) -> answers.Used:
    remaining = None if limit is None else max(0, limit - used)
    return answers.Used(name, limit, used, remaining, iso(window.resets_at))


def _no_such_key() -> Problem:
    return Problem("key_not_found", "there is no such key")


def _key_request(body: Mapping[str, object], *, default: str) -> dict[str, Any]:
    """The name, environment and retention of the new key. *default* is the environment if none is named."""
    members = members_of(body)
    name = None if body.get("name") is None else members.take("name", text_up_to(MAX_NAME_CHARS), None)
    environment = members.take("environment", one_of(("production", "sandbox")), default)
    retention = members.take("retention", one_of(bounds.RETENTIONS), None)
    members.check()
    return {"name": name, "environment": environment, "retention": retention}


def _overlap_s(body: Mapping[str, object], *, default: int) -> int:
    members = members_of(body)
    overlap_s = members.take("overlap_seconds", whole_in(OVERLAP_S), default)
    members.check()
    return overlap_s


def _token_request(body: Mapping[str, object]) -> tuple[str, Scope, int, int | None]:
    members = members_of(body)
    job_id = members.need("job_id", string)
    scope = Scope(members.take("scope", one_of([*Scope]), Scope.EVENTS))
    most = bounds.MAX_TOKEN_S if scope is Scope.EVENTS else bounds.MAX_INGEST_TOKEN_S
    ttl_s = members.take("ttl_seconds", whole_in(range(1, most + 1)), TOKEN_TTL_S)
    after_end_s = members.take("after_end_seconds", whole_in(range(bounds.MAX_TOKEN_S + 1)), None)
    if after_end_s is not None and (scope is not Scope.EVENTS or members.has("ttl_seconds")):
        members.refuse("after_end_seconds", "conflict", "needs scope=events, and no ttl_seconds")
    members.check()
    return job_id, scope, ttl_s, after_end_s
