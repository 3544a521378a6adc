"""scribewire migrate: makes or updates a cluster's tables."""

import argparse
from typing import Any

from server.commands.opening import update_tables
from server.config import PREFIX, Config, ConfigError


def add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "migrate", help="make or update the tables in the database of a cluster"
    )
    parser.set_defaults(run=migrate)


def migrate(_given: argparse.Namespace, config: Config) -> int:
    if config.database_url is None:
        raise ConfigError(f"{PREFIX}DATABASE_URL must be set; the embedded database is updated when it is opened")
    steps = update_tables(config.database_url)
    print(f"steps taken: {', '.join(map(str, steps))}" if steps else "the tables are up to date")
    return 0
