"""Whether a transaction was committed whose connection broke while its commit was under way (PostgreSQL only).

SQLite commits in this process: there an error means that nothing was committed.
"""

from sqlalchemy import Connection, func, select

from oarlock.model.errors import DatabaseAway


class OutcomeUnknown(Exception):
    """Raised when the connection broke during the commit of a transaction, which may be on disk or not."""

    def __init__(self, transaction: int) -> None:
        super().__init__(f"the connection broke during the commit of transaction {transaction}")
        self.transaction = transaction


def transaction_number(tx: Connection) -> int | None:
    """Return the number by which a transaction can be asked for later; None if it has written nothing."""
    if tx.dialect.name != "postgresql":
        return None
    # Only of one that wrote: giving a number to any other would make its commit wait for the disk.
    number: int | None = tx.execute(_NUMBER).scalar_one()
    return number


def was_committed(tx: Connection, transaction: int) -> bool:
    """Return whether an earlier transaction was committed; refuse (`DatabaseAway`) while its commit is under way."""
    status = tx.execute(select(func.txid_status(transaction))).scalar_one()
    if status == "in progress":
        raise DatabaseAway("The database has not ended an earlier transaction yet.", hint="Ask again in a moment.")
    return bool(status == "committed")


_NUMBER = select(func.txid_current_if_assigned())
