"""Two servers on one PostgreSQL database: the one that lost its lock ends, and writes nothing."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select, text

from oarlock.store.tables.columns import metadata
from tests.bed import needs_root
from tests.databases import Postgres
from tests.e2e.instance import SOURCE, Instance, free_port, instance, own_address
from tests.waiting import wait_until

pytestmark = needs_root

_NUMBERS = itertools.count()


@pytest.fixture
def site(workspace: Path, two_users: list[str], postgres: Postgres) -> Iterator[Instance]:
    address = postgres.make(template="template0")
    with instance(workspace, two_users[0], f"s{os.getpid()}x{next(_NUMBERS)}n", nodes=1, address=address) as made:
        yield made
    postgres.drop(address)


def _standby(site: Instance, workspace: Path) -> subprocess.Popen[bytes]:
    """Start a second server with a state directory, an address and a port of its own."""
    state, settings = workspace / "standby", workspace / "standby.conf"
    state.mkdir()
    shutil.copy(site.state / "oarlock.db.created", state)
    shared = [line for line in site.settings.read_text().splitlines() if not line.startswith("SERVER_")]
    own = [f'SERVER_HOSTNAME="{own_address()}"', f'SERVER_PORT="{free_port()}"']
    settings.write_text("\n".join([*shared, *own, ""]))
    with (state / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "oarlock", "serve", "--state", state, "--config", settings],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            stderr=log,
        )


def _end_lock_session(site: Instance) -> None:
    """End the connection that holds the lock, as a firewall or a failover does."""
    with site.database.read() as tx:
        tx.execute(text("SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory'"))


def test_a_frozen_server_whose_lock_went_to_another_ends_without_a_write(site: Instance, workspace: Path):
    site.start()
    site.until(lambda: "serving" in site.log())
    assert site.process is not None
    site.process.send_signal(signal.SIGSTOP)
    _end_lock_session(site)
    second = _standby(site, workspace)
    try:
        log = workspace / "standby" / "log"
        wait_until(lambda: "serving" in log.read_text() or second.poll() is not None, what="the second server")
        assert second.poll() is None, log.read_text()
        second.send_signal(signal.SIGSTOP)  # it holds the lock and does nothing: who writes now is the first
        site.submit("exit 0")
        before = _all_rows(site)
        site.process.send_signal(signal.SIGCONT)
        assert site.process.wait(timeout=20) == 2
        assert f"Another server already works on this database: process {second.pid} on " in site.log()
        assert "Traceback" not in site.log()
        assert _all_rows(site) == before
    finally:
        second.kill()
        second.wait()


def _all_rows(site: Instance) -> dict[str, list[object]]:
    """Read everything that a server writes."""
    with site.database.read() as tx:
        return {table.name: list(map(tuple, tx.execute(select(table)))) for table in metadata.sorted_tables}
