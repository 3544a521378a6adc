"""How many connections a process may have. Each needs a descriptor, and so does every file, pipe and outgoing request.

If connections took all descriptors, no audio could be read.
"""

import resource

from server.config import PREFIX, Config, ConfigError
from server.logs import log
from server.transport.connections import ConnectionRules

MAX_DESCRIPTORS = 1_048_576  # where the system has no limit
RESERVED_DESCRIPTORS = 256  # for the database, decoders and outgoing requests
DESCRIPTORS_EACH = 2  # of a connection: its socket, and the file that is uploaded or downloaded over it
MAX_CONNECTIONS = 10_000  # even if there are more descriptors: an idle connection takes 25 kB of memory

OF_ACCOUNT = 0.6  # of all connections: half of them may be readers of one session, and its owner needs some too


def raise_descriptor_limit() -> int:
    """Raise the limit of open descriptors as high as this process may, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:  # macOS has a lower limit than it reports
        log.warning("the limit of open files could not be raised: %s", error, extra={"limit": soft})
        return soft
    return wanted


def connection_limits(config: Config, descriptors: int) -> ConnectionRules:
    """The limits of connections in a process with so many *descriptors*.

    Raises ConfigError if the settings ask for more connections than there are descriptors for.
    """
    possible = max(1, (descriptors - RESERVED_DESCRIPTORS) // DESCRIPTORS_EACH)
    if config.max_connections > possible:
        raise ConfigError(
            f"{PREFIX}MAX_CONNECTIONS must be at most {possible}, because this process may open {descriptors} files, "
            f"got {config.max_connections}"
        )
    max_open = config.max_connections or min(possible, MAX_CONNECTIONS)
    max_of_address = config.max_connections_per_address or max(1, max_open // 2)
    return ConnectionRules(
        max_open=max_open, max_of_address=max_of_address, max_of_account=max(1, int(max_open * OF_ACCOUNT))
    )
