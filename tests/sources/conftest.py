"""Databases of others, each made once a session."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.waiting import wait_until


class MariaDb:
    """A real server without a port; `run` executes SQL as its root.

    A server that ended (it once did, between two modules) is started again, and what it said is printed.
    """

    def __init__(self, folder: Path):
        self.socket, self._log = folder / "s", folder / "log"
        user = f"--user={pwd.getpwuid(os.getuid()).pw_name}"
        install = ["mariadb-install-db", "--no-defaults", user, f"--datadir={folder / 'data'}", "--skip-test-db",
                   "--auth-root-authentication-method=normal"]  # fmt: skip
        subprocess.run(install, check=True, capture_output=True, timeout=100)
        self._daemon = ["/usr/sbin/mariadbd", "--no-defaults", user, f"--datadir={folder / 'data'}",
                        f"--socket={self.socket}", "--skip-networking", f"--pid-file={folder / 'pid'}",
                        "--innodb-buffer-pool-size=16M", "--innodb-flush-log-at-trx-commit=0"]  # fmt: skip
        self._client = ["mariadb", "--no-defaults", f"--socket={self.socket}", "--user=root", "--batch"]
        self._server = self._start()

    def run(self, sql, database=""):
        self.revive()
        ran = subprocess.run([*self._client, database], input=sql, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def revive(self):
        if self._server.poll() is not None:
            print(f"MariaDB ended with {self._server.returncode}:\n{self._log.read_text()[-3000:]}")
            self._server = self._start()

    def end(self):
        self._server.terminate()
        self._server.wait(60)

    def url(self, user, database):
        return f"mysql://{user}@localhost/{database}?unix_socket={self.socket}"

    def _start(self):
        with self._log.open("ab") as log:
            server = subprocess.Popen(self._daemon, stdout=log, stderr=log)
        wait_until(self._ready, "MariaDB", 60)
        return server

    def _ready(self):
        return subprocess.run([*self._client, "-e", "SELECT 1"], capture_output=True).returncode == 0


@pytest.fixture(scope="session")
def mariadb():
    if shutil.which("mariadbd", path="/usr/sbin:/usr/bin") is None:
        pytest.skip("mariadbd is not installed")
    folder = Path(tempfile.mkdtemp(prefix="oarlock-mariadb-"))
    try:
        made = MariaDb(folder)
        yield made
        made.end()
    finally:
        shutil.rmtree(folder)
