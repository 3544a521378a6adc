"""scribewire keys: make, list and revoke API keys in the data folder, also while the server is running."""

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from server.accounts.issuing import issue_key, open_account
from server.accounts.limits_file import read_limits
from server.clock import now_ms
from server.commands.opening import node_name, open_storage
from server.config import Config, ConfigError
from server.model import bounds
from server.model.errors import TooManyKeys
from server.model.instants import iso_or_none
from server.routes.accounts import new_key
from server.storage.ports import Storage


def add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("keys", help="make, list and revoke API keys")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    create = actions.add_parser("create", help="make a key and print it as JSON; it is not shown again")
    create.add_argument("--plan", default="free", help="plan of the new account (default: free)")
    create.add_argument("--environment", default="production", choices=["production", "sandbox"])
    create.add_argument("--name", help="what the key is for")
    create.add_argument("--retention", choices=bounds.RETENTIONS, help="what jobs of this key do that name none")
    create.add_argument("--account", help="add the key to this account instead of a new one")
    create.set_defaults(run=run, act=_create)
    listing = actions.add_parser("list", help="print the keys of an account as JSON")
    listing.add_argument("account")
    listing.set_defaults(run=run, act=_list)
    revoke = actions.add_parser("revoke", help="end a key at once")
    revoke.add_argument("account")
    revoke.add_argument("key_id")
    revoke.set_defaults(run=run, act=_revoke)


def run(given: argparse.Namespace, config: Config) -> int:
    print(json.dumps(asyncio.run(with_storage(config, lambda storage: given.act(storage, given, config))), indent=2))
    return 0


async def with_storage(config: Config, act: Callable[[Storage], Awaitable[Any]]) -> Any:
    """Open the storage, call *act* with it and return the result."""
    storage = open_storage(config, node=node_name(config))
    try:
        return await act(storage)
    finally:
        await storage.close()


async def _create(storage: Storage, given: argparse.Namespace, config: Config) -> Any:
    if given.account is None:
        plans = read_limits(config).plans
        if given.plan not in plans:
            raise ConfigError(f"--plan must be one of {', '.join(plans)}, got {given.plan!r}")
        account, issued = await open_account(
            storage.accounts,
            plan=given.plan,
            environment=given.environment,
            name=given.name,
            retention=given.retention,
        )
        return new_key(account, issued) | {"webhook_secret": account.webhook_secret_of(given.environment).current}
    account_or_none = await storage.accounts.account(given.account)
    if account_or_none is None:
        raise ConfigError(f"--account must be an existing account, got {given.account!r}")
    issued = issue_key(given.account, environment=given.environment, name=given.name, retention=given.retention)
    try:
        await storage.accounts.add_key(issued.key)
    except TooManyKeys as error:
        raise ConfigError(f"--account must have fewer than {error.limit} keys that work, got {error.used}") from None
    return new_key(account_or_none, issued)


async def _list(storage: Storage, given: argparse.Namespace, _config: Config) -> Any:
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


async def _revoke(storage: Storage, given: argparse.Namespace, _config: Config) -> Any:
    if not await storage.accounts.revoke(given.account, given.key_id, at=now_ms()):
        raise ConfigError(f"key_id must be a living key of {given.account}, got {given.key_id!r}")
    return {"key_id": given.key_id, "revoked": True}
