"""Reads the plans' numbers from the built-in limits.toml or the operator's own, and finds the plan of an account."""

from dataclasses import dataclass
from pathlib import Path

from server.accounts.limits import Limits
from server.config import PREFIX, Config
from server.model.accounts import Plan
from server.model.errors import BadLimits
from server.model.jobs import Job
from server.storage.sql.accounts import AccountStore

BUILT_IN = Path(__file__).parents[1] / "limits.toml"


def read_limits(config: Config) -> Limits:
    """The limits that *config* names. Raises BadLimits with the file's name."""
    path = config.limits_file or BUILT_IN
    try:
        return Limits.from_toml(path.read_text(encoding="utf-8"))
    except (BadLimits, OSError, UnicodeDecodeError) as error:
        raise BadLimits(f"{PREFIX}LIMITS_FILE must be a usable limits.toml, got {path}: {error}") from None


@dataclass(frozen=True, slots=True)
class Plans:
    accounts: AccountStore
    limits: Limits

    async def of_job(self, job: Job) -> Plan:
        """The plan of the job's account, with the account's own numbers. A deleted account has the free plan.

        Raises BadLimits for a plan or a number that the limits file does not have.
        """
        account = await self.accounts.account(job.account)
        name, own = ("free", {}) if account is None else (account.plan, account.limits)
        return self.limits.plan(name, own, sandbox=job.environment == "sandbox")
