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
    """A real server without a port; `run` executes SQL as its root."""

    def __init__(self, socket: Path):
        self.socket = socket
        self._client = ["mariadb", "--no-defaults", f"--socket={socket}", "--user=root", "--batch"]

    def run(self, sql, database=""):
        ran = subprocess.run([*self._client, database], input=sql, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def ready(self):
        return subprocess.run([*self._client, "-e", "SELECT 1"], capture_output=True).returncode == 0

    def url(self, user, database):
        return f"mysql://{user}@localhost/{database}?unix_socket={self.socket}"


@pytest.fixture(scope="session")
def mariadb():
    if shutil.which("mariadbd", path="/usr/sbin:/usr/bin") is None:
        pytest.skip("mariadbd is not installed")
    folder = Path(tempfile.mkdtemp(prefix="oarlock-mariadb-"))
    user = f"--user={pwd.getpwuid(os.getuid()).pw_name}"
    data, socket = folder / "data", folder / "s"
    install = ["mariadb-install-db", "--no-defaults", user, f"--datadir={data}", "--skip-test-db",
               "--auth-root-authentication-method=normal"]  # fmt: skip
    subprocess.run(install, check=True, capture_output=True, timeout=100)
    daemon = ["/usr/sbin/mariadbd", "--no-defaults", user, f"--datadir={data}", f"--socket={socket}",
              "--skip-networking", f"--pid-file={folder / 'pid'}", "--innodb-buffer-pool-size=16M",
              "--innodb-flush-log-at-trx-commit=0"]  # fmt: skip
    with subprocess.Popen(daemon, stderr=subprocess.DEVNULL) as server:
        try:
            made = MariaDb(socket)
            wait_until(made.ready, "MariaDB", 60)
            yield made
        finally:
            server.terminate()
            server.wait(60)
            shutil.rmtree(folder)
