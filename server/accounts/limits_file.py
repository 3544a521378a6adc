"""Reading the plans' numbers from the built-in limits.toml or from the operator's own file."""

from pathlib import Path

from server.accounts.limits import Limits
from server.config import PREFIX, Config
from server.model.errors import BadLimits

BUILT_IN = Path(__file__).parents[1] / "limits.toml"


def read_limits(config: Config) -> Limits:
    """The limits that *config* names. Raises BadLimits with the file's name."""
    path = config.limits_file or BUILT_IN
    try:
        return Limits.from_toml(path.read_text(encoding="utf-8"))
    except (BadLimits, OSError, UnicodeDecodeError) as error:
        raise BadLimits(f"{PREFIX}LIMITS_FILE must be a usable limits.toml, got {path}: {error}") from None
