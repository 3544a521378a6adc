"""Which plan holds for an account now: its plan's numbers with its own overrides."""

from dataclasses import dataclass

from server.accounts.limits import Limits
from server.model.accounts import Account, Plan
from server.storage.ports import AccountStore


@dataclass(frozen=True, slots=True)
class Plans:
    accounts: AccountStore
    limits: Limits

    def of(self, account: Account, *, environment: str) -> Plan:
        """Raises BadLimits when the account names a plan or an override that the limits file does not know."""
        return self.limits.plan(account.plan, account.limits, sandbox=environment == "sandbox")

    async def of_id(self, account_id: str, *, environment: str) -> Plan:
        """The same for an account by its id; the free plan for one that is gone."""
        account = await self.accounts.account(account_id)
        if account is None:
            return self.limits.plan("free", {}, sandbox=environment == "sandbox")
        return self.of(account, environment=environment)
