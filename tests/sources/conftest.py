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

    One that ended is started again, and what is known of its end is printed: the test bed failed, not a test.
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
        self.verify_alive()
        ran = subprocess.run([*self._client, database], input=sql, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def verify_alive(self):
        if self._server.poll() is not None:
            story = (
                f"MariaDB ended with {self._server.returncode}:\n{self._log.read_text()[-3000:]}\n{killed_by_kernel()}"
            )
            self._server = self._start()
            print(story)

    def end(self):
        self._server.terminate()
        self._server.wait(60)

    def url(self, user, database):
        return f"mysql://{user}@localhost/{database}?unix_socket={self.socket}"

    def _start(self):
        with self._log.open("ab") as log:
            # A session of its own: no signal for the group of the tests is for it.
            server = subprocess.Popen(self._daemon, stdout=log, stderr=log, start_new_session=True)
        wait_until(self._ready, "MariaDB", 60)
        return server

    def _ready(self):
        return subprocess.run([*self._client, "-e", "SELECT 1"], capture_output=True).returncode == 0


def killed_by_kernel():
    """Give the kernel's own lines of processes that it killed for their memory."""
    lines = subprocess.run(["dmesg"], capture_output=True, text=True, check=False).stdout.splitlines()
    return "\n".join(line for line in lines if "Out of memory" in line or "oom-kill" in line)


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
