"""Makes ids, accounts, keys and webhook secrets, for the API and for the operator's command line."""

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from server.accounts.keys import KEY_CHANCE_BYTES, digest, display_prefix, make_key, make_webhook_secret
from server.clock import now_ms
from server.model.accounts import Account, ApiKey, WebhookSecret
from server.model.ids import CHANCE_BYTES, Prefix, new_id
from server.storage.sql.accounts import AccountStore


@dataclass(frozen=True, slots=True)
class Issued:
    """A new key. *secret* is shown once and stored nowhere."""

    key: ApiKey
    secret: str


def fresh_id(prefix: Prefix) -> str:
    """A new id for this moment."""
    return new_id(prefix, ms=now_ms(), chance=os.urandom(CHANCE_BYTES))


def issue_key(
    account_id: str, *, environment: str, name: str | None, retention: str | None = None, chance: bytes | None = None
) -> Issued:
    """Make a key for an account; the caller stores it.

    *retention*: the default for jobs ordered with it.
    *chance*: what the secret is made of; None: random bytes. See signed.repeatable_chance().
    """
    secret = make_key(environment, chance or secrets.token_bytes(KEY_CHANCE_BYTES))
    key = ApiKey(
        id=fresh_id(Prefix.KEY),
        account=account_id,
        environment=environment,
        name=name,
        hash=digest(secret),
        prefix=display_prefix(secret),
        last4=secret[-4:],
        created_at=now_ms(),
        retention=retention,
    )
    return Issued(key, secret)


def issue_webhook_secret() -> WebhookSecret:
    return WebhookSecret(current=make_webhook_secret(secrets.token_bytes(KEY_CHANCE_BYTES)), created_at=now_ms())


async def open_account(
    accounts: AccountStore,
    *,
    plan: str,
    environment: str,
    name: str | None,
    limits: Mapping[str, object] | None = None,
    retention: str | None = None,
) -> tuple[Account, Issued]:
    """Store a new account with its first key and return both."""
    account = Account(
        id=fresh_id(Prefix.ACCOUNT),
        plan=plan,
        created_at=now_ms(),
        webhook_secret=issue_webhook_secret(),
        sandbox_webhook_secret=issue_webhook_secret(),
        limits=limits or {},
    )
    issued = issue_key(account.id, environment=environment, name=name, retention=retention)
    await accounts.create_account(account, issued.key)
    return account, issued
