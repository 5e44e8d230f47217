"""The database of Robinhood, which scans a file system: how much of it each user of a group has."""

import re
from typing import Any

from msgspec import Struct
from sqlalchemy import column, func, inspect, select, table

from oarlock.model.errors import ConfigRefused
from oarlock.store.sources.connections import ForeignDatabase

_TABLE = "ACCT_STAT"
_NAMES = (("uid", "gid"), ("owner", "gr_name"))  # of version 3, and of those before
_BLOCK = 512
_MOST = 20_000
_PLAIN = re.compile(r"[A-Za-z0-9%_][\w.%:-]{0,59}", re.ASCII)


class SpaceUse(Struct, frozen=True):
    """The files of a user in a group on a file system: the space that they take, and how many they are."""

    file_system: str
    group: str
    user: str
    used_bytes: int
    files: int


class SpaceAnswer(Struct, frozen=True):
    """What the databases that answer say, and a sentence about each of the others."""

    rows: list[SpaceUse]
    away: list[str]


def read_space(database: ForeignDatabase, file_system: str) -> list[SpaceUse]:
    """Return what each user of each group has, most first. `SourceAway` if the database fails or takes too long."""
    with database.read() as tx:
        present = {row["name"] for row in inspect(tx).get_columns(_TABLE)}
        user, group = next((names for names in _NAMES if present.issuperset(names)), _NAMES[0])
        files = table(_TABLE, *map(column, (user, group, "blocks", "count")))
        space = func.sum(files.c.blocks)
        query = (
            select(files.c[user], files.c[group], space, func.sum(files.c.count))
            .group_by(files.c[user], files.c[group])
            .order_by(space.desc(), files.c[user], files.c[group])
            .limit(_MOST)
        )
        return [
            SpaceUse(file_system, _text(group_name), _text(user_name), int(blocks or 0) * _BLOCK, int(count or 0))
            for user_name, group_name, blocks, count in tx.execute(query)
        ]


def _text(value: Any) -> str:
    """Return the name of a user or a group: bytes, or a number where Robinhood keeps numbers."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def grant(*, database: str, account: str, host: str) -> str:
    """Return the statements by which a site makes an account that reads the sums by user and group, and nothing else.

    `ConfigRefused` for names that are none.
    """
    for text, option in ((database, "--database"), (account, "--account"), (host, "--host")):
        if not _PLAIN.fullmatch(text):
            raise ConfigRefused(f"`{text[:60]}` cannot stand behind {option}.", hint="Write a plain name.")
    who = f"'{account}'@'{host}'"
    return (
        "-- Read this, put a password of your own in it, and run it as an administrator of the database.\n"
        f"CREATE USER IF NOT EXISTS {who} IDENTIFIED BY 'CHANGE-THIS';\n"
        f"GRANT SELECT ON `{database}`.`{_TABLE}` TO {who};\n"
    )
