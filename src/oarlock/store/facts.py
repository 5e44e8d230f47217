"""Facts about a database itself that must survive it being closed: its identity, its key."""

from sqlalchemy import insert, select

from oarlock.store.tables import instance
from oarlock.store.tx import Tx


def get(tx: Tx, name: str) -> str | None:
    """Give a fact; nothing if it was never written down."""
    return tx.execute(select(instance.c.value).where(instance.c.name == name)).scalar()


def keep(tx: Tx, name: str, value: str) -> str:
    """Write a fact down unless there is one already; give the one that holds."""
    known = get(tx, name)
    if known is None:
        tx.execute(insert(instance), {"name": name, "value": value})
    return known or value
