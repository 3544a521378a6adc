"""Finding the plan that applies to an account now, with the account's own overrides."""

from dataclasses import dataclass

from server.accounts.limits import Limits
from server.model.accounts import Account, Plan
from server.storage.ports import AccountStore


@dataclass(frozen=True, slots=True)
class Plans:
    """Looks up plans for the routes, the workers and live sessions."""

    accounts: AccountStore
    limits: Limits

    def of(self, account: Account, *, environment: str) -> Plan:
        """The plan of *account*. Raises BadLimits for a plan or an override that the limits file does not have."""
        return self.limits.plan(account.plan, account.limits, sandbox=environment == "sandbox")

    async def of_id(self, account_id: str, *, environment: str) -> Plan:
        """The plan of an account by its id. An account that was deleted has the free plan."""
        account = await self.accounts.account(account_id)
        if account is None:
            return self.limits.plan("free", {}, sandbox=environment == "sandbox")
        return self.of(account, environment=environment)
