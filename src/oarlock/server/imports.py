"""Imports from other resource managers into the database of an instance whose server is stopped."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from oarlock.config import Config
from oarlock.lang.oar_quotas import OarQuotas, parse_quotas
from oarlock.model.errors import DatabaseRefused
from oarlock.server.instance import database_address, prepare_state_dir
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import open_database
from oarlock.store.queries.site import administration, oar_import
from oarlock.store.queries.site.oar_import import OAR_TABLES, ImportCounts, OarReader
from oarlock.store.sources.connections import ForeignDatabase, open_file, parse_address
from oarlock.store.sources.sql_dump import load_dump

ReportProgress = Callable[[str], None]
_NO_OAR = "Name a dump of OAR's database, or postgresql://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE."


@contextmanager
def open_instance(state_dir: Path, config: Config) -> Iterator[Database]:
    """Yield the database of an instance, made if there is none; refused while a server works on it."""
    prepare_state_dir(state_dir)
    marker = state_dir / "oarlock.db.created"
    with open_database(database_address(state_dir, config), create=True, marker=marker) as database:
        database.lock(now=int(time.time()))
        yield database


def import_oar(
    state_dir: Path,
    config: Config,
    source: str,
    *,
    password: str = "",
    quotas: Path | None = None,
    say: ReportProgress = lambda _line: None,
) -> ImportCounts:
    """Bring an OAR's database, live or dumped, into an instance. All of it or nothing; OAR's side is only read."""
    limits = None if quotas is None else _read_quotas(quotas)
    with _opened(source, password, say) as oar, oar.read() as read:
        reader, report = OarReader(read), ImportCounts()
        if reader.missing:
            raise DatabaseRefused(f"{source} has no table `{reader.missing[0]}`, so it is not OAR's.", hint=_NO_OAR)
        with open_instance(state_dir, config) as database:
            database.write(lambda tx: oar_import.import_all(tx, reader, report, say))
            if limits is not None:
                _take_quotas(database, limits, report)
    return report


@contextmanager
def _opened(source: str, password: str, say: ReportProgress) -> Iterator[ForeignDatabase]:
    if "://" in source:
        address = parse_address(source, password)
        oar = ForeignDatabase(address, "OAR's database")
        try:
            yield oar
        finally:
            oar.close()
        return
    file = Path(source)
    if not file.is_file():
        raise DatabaseRefused(f"There is no file {source}.", hint=_NO_OAR)
    with tempfile.TemporaryDirectory(prefix="oarlock-import-") as folder:
        copy = Path(folder) / "dump.db"
        say(f"reading {file}")
        load_dump(file, copy, OAR_TABLES)
        oar = open_file(copy, str(file))
        try:
            with oar.read() as tx:
                oar_import.index_copy(tx)
            yield oar
        finally:
            oar.close()


def _read_quotas(file: Path) -> OarQuotas:
    try:
        return parse_quotas(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise DatabaseRefused(
            f"{file} cannot be read: {getattr(error, 'strerror', None) or error}.",
            hint="--quotas takes OAR 2's scheduler_quotas.conf.",
        ) from error


def _take_quotas(database: Database, limits: OarQuotas, report: ImportCounts) -> None:
    """Put OAR's quotas behind those that are here; one that is here already is not doubled."""
    with database.read() as tx:
        here = administration.numbered_quotas(tx)
    new = [rule for rule in limits.rules if rule not in here.values()]
    first = max(here, default=0) + 1
    database.write(lambda tx: administration.put_quotas(tx, here | dict(enumerate(new, first))))
    report.copied["quotas"] += len(new)
    report.present["quotas"] += len(limits.rules) - len(new)
    report.no_place += [f"quotas: `{line}` is no limit that can be read." for line in limits.strange]
