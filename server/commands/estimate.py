"""scribewire estimate: what a prompt will cost, without a server. This is the estimator's own command line."""

import argparse
import os
from typing import Any

from estimator.__main__ import add_arguments
from estimator.__main__ import run as run_estimate
from server.config import Config


def add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("estimate", help="price a prompt before it is run")
    add_arguments(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace, config: Config) -> int:
    ours = {"ESTIMATOR_PRICE_FEED": config.estimator_price_feed, "ESTIMATOR_RANKS_DIR": config.estimator_ranks_dir}
    return run_estimate(given, {**os.environ, **{name: str(path) for name, path in ours.items() if path}})
