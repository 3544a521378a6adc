"""The ChannelStore: one row a channel, which names the newest session that is shown there."""

from dataclasses import asdict

from server.model.accounts import Channel
from server.model.bounds import MAX_CHANNELS
from server.model.errors import TooManyChannels
from server.storage.sql.database import SqlStore, Transaction, insert, read_method, select_number, write_method
from server.storage.sql.rows import read_row


def _all(tx: Transaction, account: str, environment: str) -> list[Channel]:
    """The account's channels in that environment, by name."""
    rows = tx.all("SELECT * FROM channels WHERE account = ? AND environment = ? ORDER BY name", (account, environment))
    return [read_row(Channel, row) for row in rows]


def _get(tx: Transaction, channel_id: str) -> Channel | None:
    row = tx.one("SELECT * FROM channels WHERE id = ?", (channel_id,))
    return None if row is None else read_row(Channel, row)


def _find_named(tx: Transaction, account: str, environment: str, name: str) -> Channel | None:
    row = tx.one(
        "SELECT * FROM channels WHERE account = ? AND environment = ? AND name = ?", (account, environment, name)
    )
    return None if row is None else read_row(Channel, row)


def _show(tx: Transaction, channel_id: str, job_id: str) -> None:
    """Let the channel show the session *job_id*, unless it shows a newer one, whose id is higher."""
    tx.run("UPDATE channels SET job = ? WHERE id = ? AND (job IS NULL OR job < ?)", (job_id, channel_id, job_id))


def _delete(tx: Transaction, account: str, environment: str, channel_id: str) -> bool:
    named = (channel_id, account, environment)
    return tx.run("DELETE FROM channels WHERE id = ? AND account = ? AND environment = ?", named) > 0


def _add(tx: Transaction, channel: Channel) -> Channel:
    """Store the channel. If the account has one of that name in that environment, return that instead.

    Raises TooManyChannels if it has bounds.MAX_CHANNELS there.
    """
    tx.one("SELECT id FROM accounts WHERE id = ? FOR UPDATE", (channel.account,))  # one channel after the other
    there = _find_named(tx, channel.account, channel.environment, channel.name)
    if there is not None:
        return there
    counting = "SELECT count(*) AS n FROM channels WHERE account = ? AND environment = ?"
    if (used := select_number(tx, counting, (channel.account, channel.environment))) >= MAX_CHANNELS:
        raise TooManyChannels("channels", limit=MAX_CHANNELS, used=used)
    insert(tx, "channels", **asdict(channel))
    return channel


class ChannelStore(SqlStore):
    """The channels of accounts, and which live session each shows."""

    add = write_method(_add)
    all = read_method(_all)
    get = read_method(_get)
    find_named = read_method(_find_named)
    show = write_method(_show)
    delete = write_method(_delete)
