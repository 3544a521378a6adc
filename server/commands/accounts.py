"""scribewire accounts: list accounts, set an account's plan and its own limits."""

import argparse
from typing import Any

from server.accounts.limits_file import read_limits
from server.commands.keys import run
from server.config import Config, ConfigError
from server.model.errors import BadLimits
from server.model.instants import iso
from server.storage.ports import Storage


def add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("accounts", help="list accounts, set their plans")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="print all accounts as JSON")
    listing.set_defaults(run=run, act=_list)
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


async def _list(storage: Storage, _given: argparse.Namespace, _config: Config) -> Any:
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
