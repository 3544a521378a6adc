"""Runs the server's program with a store that believes every lease: what scripts/chaos_cluster finds then."""

import sys

from server.__main__ import main
from server.storage.sql import leases

BELIEVING = "SELECT * FROM jobs WHERE id = :id FOR UPDATE"

if __name__ == "__main__":
    leases.FENCE = BELIEVING
    sys.exit(main())
