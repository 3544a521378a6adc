"""A node of a newer version of the program: its tables have a further column each, and an index. Arguments: as ever."""

import sys

from server.__main__ import main
from server.storage.postgres import open as opening
from server.storage.postgres.connections import Connection
from server.storage.postgres.schema import MIGRATIONS, Migration, migrate

NEWER = Migration(
    """
    ALTER TABLE jobs ADD COLUMN colour TEXT;
    ALTER TABLE keys ADD COLUMN colour TEXT;
    ALTER TABLE accounts ADD COLUMN colour TEXT;
    CREATE INDEX jobs_colour ON jobs (colour);
    """
)


def migrate_further(connection: Connection) -> list[int]:
    return migrate(connection, [*MIGRATIONS, NEWER])


if __name__ == "__main__":
    opening.migrate = migrate_further  # type: ignore[assignment]  # it takes no other migrations
    sys.exit(main())
