"""Kinds of columns that all tables share."""

from collections.abc import Iterable

from sqlalchemy import BigInteger, CheckConstraint, Column, Index, Integer, MetaData, Text
from sqlalchemy import text as sql
from sqlalchemy.types import TypeEngine

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

INTEGER: TypeEngine[int] = BigInteger().with_variant(Integer(), "sqlite")
"""A whole number. SQLite makes a key quick only when it is called INTEGER; its integers have 64 bits anyway."""

TEXT_BY_CODE_POINT: TypeEngine[str] = Text().with_variant(Text(collation="C"), "postgresql")
"""A text of any length, compared by code point, as SQLite and Python do."""


def key(name: str) -> Column[int]:
    """Build a numeric key column whose values we allocate (`tx.allocate_ids`)."""
    return Column(name, INTEGER, primary_key=True, autoincrement=False)


def text_key(name: str) -> Column[str]:
    """Build a text column that is (part of) the key."""
    return Column(name, TEXT_BY_CODE_POINT, primary_key=True)


def number(name: str, default: int = 0) -> Column[int]:
    """Build a numeric column that is never NULL; `info["default"]` has its default."""
    return Column(name, INTEGER, nullable=False, server_default=str(default), info={"default": default})


def optional_number(name: str) -> Column[int]:
    """Build a numeric column that may be NULL."""
    return Column(name, INTEGER)


def text(name: str, default: str = "") -> Column[str]:
    """Build a text column that is never NULL; `info["default"]` has its default."""
    return Column(name, TEXT_BY_CODE_POINT, nullable=False, server_default=default, info={"default": default})


def optional_text(name: str) -> Column[str]:
    """Build a text column that may be NULL."""
    return Column(name, TEXT_BY_CODE_POINT)


def enum_text(name: str, words: Iterable[str], default: str) -> Column[str]:
    """Build a text column that the database restricts to a few words; `info` has them and the default."""
    allowed = tuple(map(str, words))
    listed = ", ".join(f"'{word}'" for word in allowed)
    check = CheckConstraint(f"{name} IN ({listed})", name=name)
    info = {"words": allowed, "default": str(default)}
    return Column(name, TEXT_BY_CODE_POINT, check, nullable=False, server_default=default, info=info)


def flag(name: str, default: str = "NO") -> Column[str]:
    """Build a column with the manual's YES or NO."""
    return enum_text(name, ("YES", "NO"), default)


def current(name: str) -> Column[str]:
    """Build the column that separates rows of live jobs (CURRENT) from history (LOG)."""
    return enum_text(name, ("CURRENT", "LOG"), "CURRENT")


def partial_index(name: str, column: str, where: str) -> Index:
    """Build a partial index over the few rows that queries look for; the many others cost nothing.

    Only a query that spells `where` out, value included, is answered by it: SQLite does not look into bound values.
    """
    return Index(name, column, sqlite_where=sql(where), postgresql_where=sql(where))
