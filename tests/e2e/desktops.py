"""Instances that desktops reach by TLS, and desktops: `oarlock desktop` in processes of their own."""

import contextlib
import os
import pwd
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oarlock.client import Client
from oarlock.model.job import FINAL, JobState
from oarlock.store.queries.cluster import resources
from tests import bed
from tests.certificates import certificate
from tests.e2e.instance import SOURCE, Instance, free_port, instance, own_address
from tests.e2e.terminal import job_of, piped

TYPE = ("-t", "desktop_computing", "-l", "resource_id=1,walltime=0:2:0")


class DesktopProcess:
    """One machine with `oarlock desktop`, which may be killed and started again."""

    def __init__(self, site: Instance, url: str, name: str, *, user: str = "root") -> None:
        self.site, self.url, self.name, self.user = site, url, name, user
        self.state = site.state / f"desk-{name}"
        self.token = site.state / f"{name}.token"
        self.log = site.state / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.token.touch(0o600)
        self.write_token()
        for path in (self.state, self.token):
            path.mkdir(exist_ok=True) if path is self.state else None
            os.chown(path, pwd.getpwnam(user).pw_uid, -1)

    def write_token(self, label: str = "") -> None:
        """Write a new token of the node into its file."""
        about = {"name": label or self.name, "days": 1, "node": self.name}
        made = Client(str(self.site.state / "server.sock"))._change("POST", "/tokens", about)
        self.token.write_text(str(made["token"]) + "\n")

    def command(self, *more: str) -> list[str]:
        where = ["--token-file", str(self.token), "--ca", str(self.site.state / "cert.pem")]
        return [sys.executable, "-m", "oarlock", "desktop", self.url, *where, "--state", str(self.state), *more]

    def start(self) -> None:
        """Start it, and wait until it is connected."""
        before = self.said().count("Connected to")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command(), env=environment(), stderr=log, stdout=log, user=self.user)
        self.site.until(lambda: self.said().count("Connected to") > before or self.process.poll() is not None)
        assert self.process.poll() is None, self.said()
        self.site.until(lambda: set(self.states()) == {"Alive"})

    def refused(self, *more: str) -> str:
        """Run it where it does not get far; return what it says."""
        ran = subprocess.run(
            self.command(*more), env=environment(), capture_output=True, text=True, timeout=20, user=self.user
        )
        assert (ran.returncode, ran.stdout) == (2, ""), ran
        return ran.stderr

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def kill(self) -> None:
        """End it as a power cut would, but for its jobs."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def interrupt(self) -> int:
        """Press Ctrl-C, and wait for its end."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=30)

    def states(self) -> list[str]:
        with self.site.database.read() as tx:
            listed = [resource.properties for resource in resources.listed(tx)]
        return [str(values["state"]) for values in listed if values["network_address"] == self.name]

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
        for path in Path("/proc").glob("[0-9]*/cmdline"):  # jobs of a failed test live on
            with contextlib.suppress(OSError):
                if str(self.state).encode() in path.read_bytes():
                    os.kill(int(path.parent.name), signal.SIGKILL)
        bed.remove_roots(self.name)


def environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), "LANG": "C.UTF-8", "HOME": "/nonexistent"}


@contextlib.contextmanager
def tls_instance(workspace: Path, user: str, name: str, **more: Any) -> Iterator[tuple[Instance, str]]:
    """An instance without nodes whose port speaks TLS, and its URL; it serves."""
    address, port = own_address(), free_port()
    folder = workspace / "tls"
    folder.mkdir()
    pem, key = certificate(folder, address, kind="IP")
    own = {"SERVER_HOSTNAME": address, "SERVER_PORT": port, "TLS_CERTIFICATE": pem, "TLS_KEY": key}
    with instance(workspace, user, name, nodes=0, more={**own, **more}) as made:
        (made.state / "cert.pem").write_bytes(pem.read_bytes())
        made.serve()
        yield made, f"https://{address}:{port}"


def submitted(desk: DesktopProcess, user: str, *words: str) -> int:
    """Submit a job for one desktop."""
    code, out, err = piped(desk.site, user, *TYPE, "-p", f"network_address = '{desk.name}'", *words)
    assert code == 0, err
    return job_of(out.encode())


def ended(site: Instance, job: int) -> JobState:
    site.until(lambda: site.job(job).state in FINAL)
    return site.job(job).state


def brought_back(site: Instance, job: int) -> Mapping[str, str]:
    """Return the files that a job wrote, by their names in the archive."""
    with tarfile.open(site.state / "stageouts" / f"{job}.tgz") as archive:
        files = [entry for entry in archive.getmembers() if not entry.isdir()]
        assert all(entry.isreg() for entry in files)
        return {entry.name: archive.extractfile(entry).read().decode() for entry in files}  # type: ignore[union-attr]


def plain(text: str) -> str:
    """Return the first line of a refusal."""
    return re.sub(r"^oarlock: ", "", text.partition("\n")[0])
