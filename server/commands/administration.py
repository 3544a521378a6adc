"""scribewire keys, accounts, erasures: manage keys and accounts, and list erasures, even while the server runs."""

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import to_builtins

from server.accounts.keys import issue_key, open_account
from server.accounts.limits import read_limits
from server.clock import iso, iso_or_none, now_ms
from server.commands.opening import node_name, open_storage
from server.config import Config, ConfigError
from server.model import bounds
from server.model.errors import BadLimits, TooManyKeys
from server.routes.accounts import new_key
from server.storage.sql.storage import Storage


def add(commands: Any) -> None:
    _add_keys(commands)
    _add_accounts(commands)
    _add_erasures(commands)


def _add_keys(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("keys", help="make, list and revoke API keys")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    create = actions.add_parser("create", help="make a key and print it as JSON; it is not shown again")
    create.add_argument("--plan", default="free", help="plan of the new account (default: free)")
    create.add_argument("--environment", default="production", choices=["production", "sandbox"])
    create.add_argument("--name", help="what the key is for")
    create.add_argument("--retention", choices=bounds.RETENTIONS, help="what jobs of this key do that name none")
    create.add_argument("--account", help="add the key to this account instead of a new one")
    create.set_defaults(run=run, act=_create_key)
    listing = actions.add_parser("list", help="print the keys of an account as JSON")
    listing.add_argument("account")
    listing.set_defaults(run=run, act=_list_keys)
    revoke = actions.add_parser("revoke", help="end a key at once")
    revoke.add_argument("account")
    revoke.add_argument("key_id")
    revoke.set_defaults(run=run, act=_revoke_key)


def _add_accounts(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("accounts", help="list accounts, set their plans")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="print all accounts as JSON")
    listing.set_defaults(run=run, act=_list_accounts)
    plan = actions.add_parser("set-plan", help="change an account's plan, and its own limits")
    plan.add_argument("account")
    plan.add_argument("plan")
    plan.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="one of the plan's numbers for this account alone, as in limits.toml; may be repeated; 'unlimited' too",
    )
    plan.set_defaults(run=run, act=_set_plan)


def _add_erasures(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "erasures", help="print as JSON which jobs were erased, when and why, the newest first"
    )
    parser.add_argument("--job", metavar="JOB_ID", help="of this job alone")
    parser.add_argument("--limit", type=int, default=1000, help="at most so many lines (default: 1000)")
    parser.set_defaults(run=run, act=_list_erasures)


def run(given: argparse.Namespace, config: Config) -> int:
    print(json.dumps(asyncio.run(with_storage(config, lambda storage: given.act(storage, given, config))), indent=2))
    return 0


async def with_storage(config: Config, act: Callable[[Storage], Awaitable[Any]]) -> Any:
    """Open the storage and return what *act* returns."""
    storage = open_storage(config, node=node_name(config))
    try:
        return await act(storage)
    finally:
        await storage.close()


async def _create_key(storage: Storage, given: argparse.Namespace, config: Config) -> Any:
    if given.account is None:
        plans = read_limits(config).plans
        if given.plan not in plans:
            raise ConfigError(f"--plan must be one of {', '.join(plans)}, got {given.plan!r}")
        account, issued = await open_account(
            storage.accounts, plan=given.plan, environment=given.environment, name=given.name, retention=given.retention
        )
        secret = account.webhook_secret_of(given.environment).current
        return to_builtins(new_key(account, issued, webhook_secret=secret))
    account_or_none = await storage.accounts.account(given.account)
    if account_or_none is None:
        raise ConfigError(f"--account must be an existing account, got {given.account!r}")
    issued = issue_key(given.account, environment=given.environment, name=given.name, retention=given.retention)
    try:
        await storage.accounts.add_key(issued.key)
    except TooManyKeys as error:
        raise ConfigError(f"--account must have fewer than {error.limit} keys that work, got {error.used}") from None
    return to_builtins(new_key(account_or_none, issued))


async def _list_keys(storage: Storage, given: argparse.Namespace, _config: Config) -> Any:
    return [
        {
            "key_id": key.id,
            "prefix": key.prefix,
            "name": key.name,
            "environment": key.environment,
            "retention": key.retention,
            "revoked_at": iso_or_none(key.revoked_at),
            "last_used_at": iso_or_none(key.last_used_at),
        }
        for key in await storage.accounts.keys(given.account)
    ]


async def _revoke_key(storage: Storage, given: argparse.Namespace, _config: Config) -> Any:
    if not await storage.accounts.revoke(given.account, given.key_id, at=now_ms()):
        raise ConfigError(f"key_id must be a living key of {given.account}, got {given.key_id!r}")
    return {"key_id": given.key_id, "revoked": True}


async def _list_accounts(storage: Storage, _given: argparse.Namespace, _config: Config) -> Any:
    return [
        {
            "account_id": account.id,
            "plan": account.plan,
            "limits": dict(account.limits),
            "created_at": iso(account.created_at),
        }
        for account in await storage.accounts.accounts()
    ]


async def _set_plan(storage: Storage, given: argparse.Namespace, config: Config) -> Any:
    own = dict(_limit(text) for text in given.limit)
    try:
        read_limits(config).plan(given.plan, own, sandbox=False)
    except BadLimits as error:
        raise ConfigError(str(error)) from None
    if not await storage.accounts.set_plan(given.account, given.plan, own):
        raise ConfigError(f"account must be an existing account, got {given.account!r}")
    return {"account_id": given.account, "plan": given.plan, "limits": own}


def _limit(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    if value == "unlimited":
        return name, None
    if not (value.isascii() and value.isdecimal()):
        raise ConfigError(f"--limit must be NAME=NUMBER or NAME=unlimited, got {text!r}")
    return name, int(value)


async def _list_erasures(storage: Storage, given: argparse.Namespace, _config: Config) -> Any:
    return [
        {"job_id": line.job_id, "at": iso(line.at), "what": line.what.value, "why": line.why.value}
        for line in await storage.upkeep.erasures(job_id=given.job, limit=max(0, given.limit))
    ]
