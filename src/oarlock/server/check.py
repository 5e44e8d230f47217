"""`oarlock check`: the invariants of an instance's database, beside its server or without one; and their repair."""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from oarlock.config import Config
from oarlock.job.check import run
from oarlock.job.check.finding import REPAIRABLE, CheckFinding
from oarlock.model.errors import DatabaseHeld, DatabaseRefused
from oarlock.model.event import Event, EventType
from oarlock.server.instance import database_address
from oarlock.store import migrations
from oarlock.store.engine.opening import open_database, open_for_check, parse_address
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events
from oarlock.store.queries.site import integrity, integrity_site
from oarlock.store.queries.usage import accounting


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check found, what of it was repaired, and over how many jobs."""

    jobs: int
    findings: list[CheckFinding]
    repaired: list[CheckFinding]


def check(state_dir: Path, config: Config, *, progress: run.Progress) -> CheckResult:
    """Check the database of an instance in one transaction that only reads, whether its server runs or not."""
    where = parse_address(database_address(state_dir, config))
    if isinstance(where, Path) and not where.is_file():
        raise DatabaseRefused(f"There is no database at {where}.", hint="Name the state directory with --state.")
    with open_for_check(where) as tx, _collector_paused():
        _refuse_other_form(tx)
        findings = run.check(tx, config, thorough=True, progress=progress)
        return CheckResult(integrity.count_jobs(tx), findings, [])


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Read without the collector of cycles: of a million rows, none of which names another, it takes half of the time.

    The records of some thousand jobs are freed as the next ones are read, so memory does not grow.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def repair(state_dir: Path, config: Config, *, progress: run.Progress) -> CheckResult:
    """Check, and repair what can be, all in one transaction; refused while a server works on the database."""
    before = check(state_dir, config, progress=progress)  # also refuses one that would have to be migrated
    with open_database(database_address(state_dir, config), marker=state_dir / "oarlock.db.created") as database:
        try:
            database.lock(now=int(time.time()))
        except DatabaseHeld as held:
            raise DatabaseHeld(
                f"A database is not repaired while a server works on it. {held}",
                hint="Stop the server first; `oarlock check` without --repair does not need that.",
            ) from held
        left = database.write(lambda tx: _repair(tx, config))
    gone = [finding for finding in before.findings if finding not in left]
    return CheckResult(before.jobs, left, gone)


def _repair(tx: Tx, config: Config) -> list[CheckFinding]:
    findings = run.check(tx, config)
    if wrong := [finding for finding in findings if finding.invariant in REPAIRABLE]:
        accounting.reinitialize(tx)
        while accounting.update_accounts(tx, window=config.accounting_window):
            pass
        says = f"`oarlock check --repair` computed the accounting again: {wrong[0].sentence}"
        events.add(tx, [Event(EventType.ACCOUNTING_REPAIRED, int(time.time()), says)])
    return run.check(tx, config)


def _refuse_other_form(tx: Tx) -> None:
    revision, newest = integrity_site.revision(tx), migrations.REVISIONS[-1]
    if revision != newest:
        raise DatabaseRefused(
            f"The database has form `{revision}`, and this version checks form `{newest}`.",
            hint="Start the server of this version once: it brings an older one up to date, after a copy.",
        )
