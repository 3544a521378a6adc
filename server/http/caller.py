"""The client of one request, as AccessControl has identified it."""

from dataclasses import dataclass

from server.http.problems import Problem
from server.model.accounts import Account, ApiKey, Customer, Plan, WindowUse


@dataclass(frozen=True, slots=True)
class Caller:
    """A client and its limits. Without a key only its address is known."""

    environment: str
    address: str  # its address_key()
    account: Account | None = None
    key: ApiKey | None = None
    plan: Plan | None = None
    window: WindowUse | None = None  # of the one-minute window, if the request was counted
    idempotency_key: str | None = None  # of a POST request
    owner: bool = False  # the machine's owner, by the page's cookie: nothing is rationed

    @property
    def account_id(self) -> str:
        return self.require_account()[0].id

    @property
    def customer(self) -> Customer:
        account, key, plan = self.require_account()
        return Customer(account=account.id, environment=self.environment, plan=plan, retention=key.retention)

    def require_account(self) -> tuple[Account, ApiKey, Plan]:
        """Account, key and plan, which callers of operations with Auth.KEY always have. Raises Problem without them."""
        if self.account is None or self.key is None or self.plan is None:
            raise Problem("missing_credentials", "Send an API key as Authorization: Bearer YOUR_KEY.")
        return self.account, self.key, self.plan
