"""Which plan holds for an account now: its plan's numbers with its own overrides."""

from server.accounts.limits import Limits
from server.model.accounts import Account, Plan
from server.storage.ports import AccountStore


class Plans:
    def __init__(self, accounts: AccountStore, limits: Limits) -> None:
        self._accounts = accounts
        self._limits = limits

    def of(self, account: Account, *, environment: str) -> Plan:
        """Raises BadLimits when the account names a plan or an override that the limits file does not know."""
        return self._limits.plan(account.plan, account.limits, sandbox=environment == "sandbox")

    async def of_id(self, account_id: str, *, environment: str) -> Plan:
        """The same for an account by its id; the free plan for one that is gone."""
        account = await self._accounts.account(account_id)
        if account is None:
            return self._limits.plan("free", {}, sandbox=environment == "sandbox")
        return self.of(account, environment=environment)
