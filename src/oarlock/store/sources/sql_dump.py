"""A dump of a database as text, read without its server: what `pg_dump` and `mysqldump` write.

It is loaded into a temporary SQLite file, so that a dump is read by the same statements as a live database. A dump
says at its end that it is whole; one that does not was cut off, and is refused before anything is read from it.
"""

import gzip
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from enum import Enum
from pathlib import Path
from typing import NamedTuple, TextIO

from oarlock.model.errors import DatabaseRefused
from oarlock.model.resource import Value

_GZIP = b"\x1f\x8b"
_PG_CUSTOM = b"PGDMP"
_MAKE = "Make it with `pg_dump --no-owner DATABASE > FILE` or `mysqldump DATABASE > FILE`."
_ROWS_AT_ONCE = 5_000
_NAME = r'[`"]?([A-Za-z_]\w*)[`"]?'
_TABLE = rf'(?:[`"]?\w+[`"]?\.)?{_NAME}'
_CREATE = re.compile(rf"CREATE TABLE (?:IF NOT EXISTS )?{_TABLE} ?\((.*)\)[^)]*;\s*$", re.DOTALL)
_COPY = re.compile(rf"COPY {_TABLE} \(([^)]*)\) FROM stdin;")
_INSERT = re.compile(rf"(?:INSERT|REPLACE) (?:IGNORE )?INTO {_TABLE}\s*(?:\(([^)]*)\))?\s*VALUES\s*", re.DOTALL)
_COLUMN = re.compile(rf"\s*{_NAME}\s+(\w+)")
_NOT_COLUMNS = frozenset(["primary", "key", "unique", "constraint", "index", "fulltext", "spatial", "check", "foreign"])
_WHOLE_NUMBERS = ("int", "integer", "bigint", "smallint", "tinyint", "mediumint", "serial", "bigserial")
_ENDS = ("-- PostgreSQL database dump complete", "-- Dump completed")


class _Dialect(Enum):
    """Whose dump it is: they escape texts in different ways."""

    POSTGRESQL = "PostgreSQL"
    MYSQL = "MySQL"


_VALUE = {
    _Dialect.MYSQL: re.compile(r"\s*(?:(?:_\w+\s*)?'((?:[^'\\]|\\.|'')*)'|([^\s,()']+))\s*([,)])", re.DOTALL),
    _Dialect.POSTGRESQL: re.compile(r"\s*(?:E?'((?:[^']|'')*)'|([^\s,()']+))(?:::[\w ]+)?\s*([,)])", re.DOTALL),
}
_TEXT = {
    _Dialect.MYSQL: re.compile(r"'(?:[^'\\]|\\.|'')*'", re.DOTALL),
    _Dialect.POSTGRESQL: re.compile(r"'(?:[^']|'')*'"),
}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a", "f": "\f", "v": "\v"}
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class DumpedTable(NamedTuple):
    """A table of a dump: its columns, and whether each holds whole numbers."""

    name: str
    columns: dict[str, bool]


class DumpedRows(NamedTuple):
    """Rows of a table. Without names, they have a value for each column of the table."""

    table: str
    columns: tuple[str, ...] | None
    rows: Sequence[Sequence[Value]]


def load_dump(file: Path, into: Path, tables: Iterable[str]) -> None:
    """Load these tables of a dump into a new SQLite database; `DatabaseRefused` if it is cut off or no dump at all."""
    wanted = frozenset(tables)
    try:
        with open_dump(file) as lines, closing(sqlite3.connect(into, isolation_level=None)) as database:
            database.execute("PRAGMA synchronous = OFF")
            database.execute("BEGIN")
            _load(database, read_dump(lines, str(file)), wanted)
            database.execute("COMMIT")
    except (UnicodeDecodeError, EOFError, OSError, sqlite3.Error) as error:
        why = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise DatabaseRefused(f"{file} cannot be read: {why}.", hint=_MAKE) from error


def is_packed(file: Path) -> bool:
    """Return whether a dump is in PostgreSQL's own format, which its program `pg_restore` makes text of."""
    return _beginning(file) == _PG_CUSTOM


def open_dump(file: Path) -> TextIO:
    """Open a dump of text, packed by gzip or not."""
    if _beginning(file).startswith(_GZIP):
        return gzip.open(file, "rt", encoding="utf-8")
    return file.open(encoding="utf-8", newline="\n")


def _beginning(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(len(_PG_CUSTOM))


def read_dump(lines: Iterable[str], name: str) -> Iterator[DumpedTable | DumpedRows]:
    """Yield the tables of a dump and their rows, in its order; `DatabaseRefused` at its end if it is not whole."""
    source = iter(lines)
    dialect, whole = _Dialect.POSTGRESQL, False
    for line in source:
        if line.startswith("--"):
            whole = whole or line.startswith(_ENDS)
            if "MySQL dump" in line or "MariaDB dump" in line:
                dialect = _Dialect.MYSQL
        elif match := _COPY.match(line):
            columns = tuple(_names(match[2]))
            for rows in _copied(source, name):
                yield DumpedRows(match[1], columns, rows)
        elif line.startswith(("CREATE TABLE ", "INSERT INTO ", "REPLACE INTO ", "INSERT IGNORE ")):
            yield from _understood(_statement(line, source, dialect, name), dialect, name)
    if not whole:
        raise DatabaseRefused(f"{name} is cut off, or no dump of a database: its last line is missing.", hint=_MAKE)


def _names(text: str) -> list[str]:
    return [name.strip(' `"') for name in text.split(",")]


def _copied(lines: Iterator[str], name: str) -> Iterator[list[list[Value]]]:
    """Yield the rows behind `COPY`, some at once: tabs between values, backslash escapes."""
    rows: list[list[Value]] = []
    for line in lines:
        if line == "\\.\n":
            yield rows
            return
        if not line.endswith("\n"):
            break
        rows.append([_copied_value(value) for value in line[:-1].split("\t")])
        if len(rows) == _ROWS_AT_ONCE:
            yield rows
            rows = []
    raise DatabaseRefused(f"{name} is cut off among the rows of a table.", hint=_MAKE)


def _copied_value(text: str) -> Value:
    if text == "\\N":
        return None
    return _unescaped(text) if "\\" in text else text


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[1]), text)


def _statement(line: str, lines: Iterator[str], dialect: _Dialect, name: str) -> str:
    """Return a statement whole: up to a `;` at the end of a line that is not inside of a text."""
    whole, part = "", line
    while True:
        outside = _TEXT[dialect].sub("", part)
        if "'" not in outside:  # no text goes on in the next line: what was looked at need not be looked at again
            whole, part = whole + part, ""
            if outside.rstrip().endswith(";"):
                return whole
        following = next(lines, None)
        if following is None:
            raise DatabaseRefused(f"{name} is cut off inside of a statement.", hint=_MAKE)
        part += following


def _understood(statement: str, dialect: _Dialect, name: str) -> Iterator[DumpedTable | DumpedRows]:
    if match := _CREATE.match(statement):
        columns = {
            line_match[1]: line_match[2].lower().rstrip("0123456789") in _WHOLE_NUMBERS
            for line in match[2].split("\n")
            if (line_match := _COLUMN.match(line)) and line_match[1].lower() not in _NOT_COLUMNS
        }
        yield DumpedTable(match[1], columns)
    elif match := _INSERT.match(statement):
        named = tuple(_names(match[2])) if match[2] else None
        yield DumpedRows(match[1], named, list(_inserted(statement, match.end(), dialect, name)))


def _inserted(text: str, at: int, dialect: _Dialect, name: str) -> Iterator[list[Value]]:
    """Yield the rows behind `VALUES`."""
    pattern, row = _VALUE[dialect], list[Value]()
    at = text.find("(", at) + 1
    while at > 0:
        match = pattern.match(text, at)
        if match is None:
            raise DatabaseRefused(f"{name} has values that are not understood: {text[at : at + 40]!r}.", hint=_MAKE)
        row.append(_inserted_value(match[1], match[2], dialect))
        at = match.end()
        if match[3] == ")":
            yield row
            row = []
            at = text.find("(", at) + 1


def _inserted_value(quoted: str | None, bare: str | None, dialect: _Dialect) -> Value:
    if quoted is not None:
        text = quoted.replace("''", "'") if "''" in quoted else quoted
        return _unescaped(text) if dialect is _Dialect.MYSQL and "\\" in text else text
    return None if bare is None or bare.upper() == "NULL" else bare


def _load(database: sqlite3.Connection, parts: Iterator[DumpedTable | DumpedRows], wanted: frozenset[str]) -> None:
    columns: dict[str, tuple[str, ...]] = {}
    for part in parts:
        if isinstance(part, DumpedTable):
            if part.name in wanted and part.name not in columns:
                columns[part.name] = tuple(part.columns)
                listed = ", ".join(f'"{name}" {"INTEGER" if whole else "TEXT"}' for name, whole in part.columns.items())
                database.execute(f'CREATE TABLE "{part.name}" ({listed})')
        elif part.table in columns:
            names = part.columns or columns[part.table]
            listed = ", ".join(f'"{name}"' for name in names)
            marks = ", ".join("?" * len(names))
            database.executemany(f'INSERT INTO "{part.table}" ({listed}) VALUES ({marks})', part.rows)  # noqa: S608
