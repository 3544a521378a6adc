"""The ChannelStore: one row a channel, which names the newest session that is shown there."""

from server.model.bounds import MAX_CHANNELS
from server.model.channels import Channel
from server.model.errors import TooManyChannels
from server.storage.sql.database import Database, Transaction
from server.storage.sql.rows import SqlRow


class SqlChannels:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, channel: Channel) -> Channel:
        return await self._database.write(lambda tx: _add(tx, channel))

    async def all(self, account: str, environment: str) -> list[Channel]:
        def everything(tx: Transaction) -> list[Channel]:
            rows = tx.all(
                "SELECT * FROM channels WHERE account = ? AND environment = ? ORDER BY name", (account, environment)
            )
            return [_channel_of(row) for row in rows]

        return await self._database.read(everything)

    async def get(self, channel_id: str) -> Channel | None:
        def find(tx: Transaction) -> Channel | None:
            row = tx.one("SELECT * FROM channels WHERE id = ?", (channel_id,))
            return None if row is None else _channel_of(row)

        return await self._database.read(find)

    async def find_named(self, account: str, environment: str, name: str) -> Channel | None:
        return await self._database.read(lambda tx: _find_by_name(tx, account, environment, name))

    async def show(self, channel_id: str, job_id: str) -> None:
        await self._database.write(
            lambda tx: tx.run(
                "UPDATE channels SET job = ? WHERE id = ? AND (job IS NULL OR job < ?)", (job_id, channel_id, job_id)
            )
        )

    async def delete(self, account: str, environment: str, channel_id: str) -> bool:
        def remove(tx: Transaction) -> bool:
            return (
                tx.run(
                    "DELETE FROM channels WHERE id = ? AND account = ? AND environment = ?",
                    (channel_id, account, environment),
                )
                > 0
            )

        return await self._database.write(remove)


def _add(tx: Transaction, channel: Channel) -> Channel:
    tx.one("SELECT id FROM accounts WHERE id = ? FOR UPDATE", (channel.account,))  # one channel after the other
    there = _find_by_name(tx, channel.account, channel.environment, channel.name)
    if there is not None:
        return there
    (row,) = tx.all(
        "SELECT count(*) AS n FROM channels WHERE account = ? AND environment = ?",
        (channel.account, channel.environment),
    )
    if row["n"] >= MAX_CHANNELS:
        raise TooManyChannels("channels", limit=MAX_CHANNELS, used=row["n"])
    tx.run(
        "INSERT INTO channels (id, account, environment, name, created_at, job) VALUES (?, ?, ?, ?, ?, ?)",
        (channel.id, channel.account, channel.environment, channel.name, channel.created_at, channel.job),
    )
    return channel


def _find_by_name(tx: Transaction, account: str, environment: str, name: str) -> Channel | None:
    row = tx.one(
        "SELECT * FROM channels WHERE account = ? AND environment = ? AND name = ?", (account, environment, name)
    )
    return None if row is None else _channel_of(row)


def _channel_of(row: SqlRow) -> Channel:
    return Channel(
        id=row["id"],
        account=row["account"],
        environment=row["environment"],
        name=row["name"],
        created_at=row["created_at"],
        job=row["job"],
    )
