"""Accounts, their API keys and their channels. Keys are stored as SHA-256, since random bytes need no slow hash."""

import base64
import hmac
from collections.abc import Mapping
from dataclasses import asdict

import orjson
from msgspec.json import Decoder

from server.model.accounts import Account, ApiKey, Channel, WebhookSecret
from server.model.bounds import MAX_CHANNELS, MAX_ENDED_KEYS, MAX_KEYS
from server.model.errors import TooManyChannels, TooManyKeys
from server.storage.sql.database import (
    Database,
    SqlStore,
    Transaction,
    insert,
    lookup_method,
    read_method,
    select_number,
    write_method,
)
from server.storage.sql.rows import UNBOUNDED, SqlRow, read_row, text_of

TOUCH_EVERY_MS = 60_000  # the last use is stored to the minute: one commit a minute, not one per request
_SECRET = Decoder(WebhookSecret)
MAX_TOUCHED = 10_000  # keys whose last write is in memory; then all are dropped and each is written once more


def _add_key(tx: Transaction, key: ApiKey) -> None:
    """Store *key* and delete the account's oldest ended ones. Raises TooManyKeys if it has MAX_KEYS valid ones."""
    owner = {"account": key.account, "now": tx.now, "kept": MAX_ENDED_KEYS, "all": UNBOUNDED}
    tx.one("SELECT id FROM accounts WHERE id = ? FOR UPDATE", (key.account,))  # nobody else counts its keys meanwhile
    working = select_number(
        tx,
        "SELECT count(*) AS n FROM keys"
        " WHERE account = :account AND revoked_at IS NULL AND coalesce(expires_at, :now + 1) > :now",
        owner,
    )
    if working >= MAX_KEYS:
        raise TooManyKeys("keys", limit=MAX_KEYS, used=working)
    tx.run(
        "DELETE FROM keys WHERE id IN (SELECT id FROM keys"
        " WHERE account = :account AND (revoked_at IS NOT NULL OR expires_at <= :now)"
        " ORDER BY created_at DESC, id DESC LIMIT :all OFFSET :kept)",
        owner,
    )
    insert(tx, "keys", **asdict(key))


def _add_key_once(tx: Transaction, key: ApiKey) -> ApiKey:
    """Store *key* as _add_key() does, or return the key with the same secret that was stored before."""
    tx.one("SELECT id FROM accounts WHERE id = ? FOR UPDATE", (key.account,))
    row = tx.one("SELECT * FROM keys WHERE hash = ?", (key.hash,))
    if row is not None:
        return read_row(ApiKey, row)
    _add_key(tx, key)
    return key


def _account(tx: Transaction, account_id: str) -> Account | None:
    row = tx.one("SELECT * FROM accounts WHERE id = ?", (account_id,))
    return None if row is None else _account_of(row)


def _account_of(row: SqlRow) -> Account:
    secret = _SECRET.decode(row["webhook_secret"])
    sandbox = row["sandbox_webhook_secret"]
    return Account(
        id=row["id"],
        plan=row["plan"],
        created_at=row["created_at"],
        webhook_secret=secret,
        sandbox_webhook_secret=_for_sandbox(secret) if sandbox is None else _SECRET.decode(sandbox),
        limits=orjson.loads(row["limits"]),
    )


def _for_sandbox(secret: WebhookSecret) -> WebhookSecret:
    """Derive the sandbox's secret of an old account, which has only one. It does not reveal the production secret."""
    chance = hmac.digest(secret.current.encode(), b"sandbox webhooks", "sha256")
    return WebhookSecret(current="whsec_" + base64.b64encode(chance).decode(), created_at=secret.created_at)


def _create_account(tx: Transaction, account: Account, key: ApiKey) -> None:
    insert(
        tx,
        "accounts",
        id=account.id,
        plan=account.plan,
        created_at=account.created_at,
        limits=text_of(account.limits),
        webhook_secret=text_of(account.webhook_secret),
        sandbox_webhook_secret=text_of(account.sandbox_webhook_secret),
    )
    _add_key(tx, key)


def _find_by_hash(tx: Transaction, digest: bytes) -> tuple[ApiKey, Account] | None:
    """The key with this SHA-256, and its account. The caller checks whether the key is revoked or expired."""
    row = tx.one(
        "SELECT keys.*, plan, limits, webhook_secret, sandbox_webhook_secret, accounts.created_at AS since"
        " FROM keys JOIN accounts ON accounts.id = keys.account WHERE hash = ?",
        (digest,),
    )
    if row is None:
        return None
    return read_row(ApiKey, row), _account_of({**row, "id": row["account"], "created_at": row["since"]})


def _accounts(tx: Transaction) -> list[Account]:
    return [_account_of(row) for row in tx.all("SELECT * FROM accounts ORDER BY created_at, id")]


def _keys(tx: Transaction, account_id: str) -> list[ApiKey]:
    rows = tx.all("SELECT * FROM keys WHERE account = ? ORDER BY created_at, id", (account_id,))
    return [read_row(ApiKey, row) for row in rows]


def _revoke(tx: Transaction, account_id: str, key_id: str, *, at: int) -> bool:
    revoked = "UPDATE keys SET revoked_at = ? WHERE id = ? AND account = ? AND revoked_at IS NULL"
    return tx.run(revoked, (at, key_id, account_id)) > 0


def _rotate(tx: Transaction, account_id: str, key_id: str, *, new: ApiKey, old_expires_at: int) -> bool:
    """Add *new* and let the old key end at *old_expires_at*, in one commit. Returns False if that key is not valid.

    Raises TooManyKeys.
    """
    ended = tx.run(
        "UPDATE keys SET expires_at = CASE WHEN expires_at < :ends THEN expires_at ELSE :ends END"
        " WHERE id = :id AND account = :account AND revoked_at IS NULL"
        " AND (expires_at IS NULL OR expires_at > :now)",
        {"id": key_id, "account": account_id, "ends": old_expires_at, "now": tx.now},
    )
    if ended:
        _add_key(tx, new)
    return ended > 0


def _set_plan(tx: Transaction, account_id: str, plan: str, limits: Mapping[str, object] | None) -> bool:
    changed = "UPDATE accounts SET plan = ?, limits = ? WHERE id = ?"
    return tx.run(changed, (plan, text_of(limits or {}), account_id)) > 0


def _rotate_webhook_secret(tx: Transaction, account_id: str, environment: str, secret: WebhookSecret) -> bool:
    column = "sandbox_webhook_secret" if environment == "sandbox" else "webhook_secret"  # one of two words
    return tx.run(f"UPDATE accounts SET {column} = ? WHERE id = ?", (text_of(secret), account_id)) > 0  # noqa: S608


class AccountStore(SqlStore):
    """Accounts and their API keys."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._touched: dict[str, int] = {}

    create_account = write_method(_create_account)
    add_key = write_method(_add_key_once)
    by_hash = lookup_method(_find_by_hash)
    account = lookup_method(_account)
    accounts = read_method(_accounts)
    keys = read_method(_keys)
    revoke = write_method(_revoke)
    rotate = write_method(_rotate)
    set_plan = write_method(_set_plan)
    rotate_webhook_secret = write_method(_rotate_webhook_secret)

    async def touch(self, key_id: str, at: int) -> None:
        """Record that the key was used at *at*. A backend may skip a use shortly after one that it recorded."""
        if at - self._touched.get(key_id, -TOUCH_EVERY_MS) < TOUCH_EVERY_MS:
            return
        if len(self._touched) >= MAX_TOUCHED:
            self._touched.clear()
        self._touched[key_id] = at
        await self.database.write(
            lambda tx: tx.run(
                "UPDATE keys SET last_used_at = ? WHERE id = ? AND coalesce(last_used_at, 0) < ?", (at, key_id, at)
            )
        )


def _channels(tx: Transaction, account: str, environment: str) -> list[Channel]:
    """The account's channels in that environment, by name."""
    rows = tx.all("SELECT * FROM channels WHERE account = ? AND environment = ? ORDER BY name", (account, environment))
    return [read_row(Channel, row) for row in rows]


def _channel(tx: Transaction, channel_id: str) -> Channel | None:
    row = tx.one("SELECT * FROM channels WHERE id = ?", (channel_id,))
    return None if row is None else read_row(Channel, row)


def _find_channel(tx: Transaction, account: str, environment: str, name: str) -> Channel | None:
    row = tx.one(
        "SELECT * FROM channels WHERE account = ? AND environment = ? AND name = ?", (account, environment, name)
    )
    return None if row is None else read_row(Channel, row)


def _show_in_channel(tx: Transaction, channel_id: str, job_id: str) -> None:
    """Let the channel show the session *job_id*, unless it shows a newer one, whose id is higher."""
    tx.run("UPDATE channels SET job = ? WHERE id = ? AND (job IS NULL OR job < ?)", (job_id, channel_id, job_id))


def _delete_channel(tx: Transaction, account: str, environment: str, channel_id: str) -> bool:
    named = (channel_id, account, environment)
    return tx.run("DELETE FROM channels WHERE id = ? AND account = ? AND environment = ?", named) > 0


def _add_channel(tx: Transaction, channel: Channel) -> Channel:
    """Store the channel. If the account has one of that name in that environment, return that instead.

    Raises TooManyChannels if it has bounds.MAX_CHANNELS there.
    """
    tx.one("SELECT id FROM accounts WHERE id = ? FOR UPDATE", (channel.account,))  # one channel after the other
    there = _find_channel(tx, channel.account, channel.environment, channel.name)
    if there is not None:
        return there
    counting = "SELECT count(*) AS n FROM channels WHERE account = ? AND environment = ?"
    if (used := select_number(tx, counting, (channel.account, channel.environment))) >= MAX_CHANNELS:
        raise TooManyChannels("channels", limit=MAX_CHANNELS, used=used)
    insert(tx, "channels", **asdict(channel))
    return channel


class ChannelStore(SqlStore):
    """The channels of accounts: one row a channel, which names the newest session that is shown there."""

    add = write_method(_add_channel)
    all = read_method(_channels)
    get = read_method(_channel)
    find_named = read_method(_find_channel)
    show = write_method(_show_in_channel)
    delete = write_method(_delete_channel)
