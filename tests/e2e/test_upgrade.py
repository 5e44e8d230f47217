"""From the last release to this version, with jobs that run meanwhile: none is lost or run twice. And the way back."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from oarlock.cli.oarlock import main
from oarlock.client import Client
from oarlock.store import migrations
from oarlock.store.engine.opening import open_database
from tests.bed import needs_root
from tests.e2e.instance import SOURCE, Instance
from tests.e2e.test_restore import NORMAL, WAITS
from tests.releases import RELEASES
from tests.waiting import wait_until

pytestmark = [needs_root, pytest.mark.soak]
# Run by the release's own code: the form of its database is its own.
BEGIN = """
import sys
from pathlib import Path
from tests.e2e.instance import Instance
made = Instance(Path(sys.argv[1]), sys.argv[2], ["upgrade1", "upgrade2"])
for command in sys.argv[3:]:
    made.submit(command)
made.database.close()
"""


@dataclass(frozen=True)
class BuiltRelease:
    """The last release: its wheel unpacked, and its source with its tests."""

    wheel: Path
    source: Path


@pytest.fixture(scope="module")
def last_release(tmp_path_factory) -> BuiltRelease:
    RELEASES[0].require_commit()
    folder = tmp_path_factory.mktemp("release")
    return BuiltRelease(RELEASES[0].unpack_wheel(folder), folder / "source")


class Upgraded(Instance):
    """An instance that the release began, with a job for each command."""

    def __init__(self, workspace: Path, user: str, release: BuiltRelease, *commands: str) -> None:
        self.state, self.user, self.home = workspace / "state", user, workspace / "home"
        self.nodes, self.settings = ["upgrade1", "upgrade2"], workspace / "oar.conf"
        self.process = None
        self.release = release
        paths = f"{release.wheel}:{release.source}"
        begin = [sys.executable, "-c", BEGIN, str(workspace), user, *commands]
        ran = subprocess.run(
            begin,
            cwd=release.source,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ran.returncode == 0, ran.stderr

    def serve_release(self, *running: int) -> None:
        """Let the release serve until these jobs run."""
        self.source = self.release.wheel
        self.serve()
        socket = str(self.state / "server.sock")
        self.until(lambda: {job["Job_Id"] for job in Client(socket).jobs(states="Running")} == set(running))

    def serve_this(self) -> None:
        """Let this version serve."""
        self.source = SOURCE
        self.serve()
        self.database = open_database(self.state / "oarlock.db")

    def serve_again(self) -> bool:
        """Start the release on what this version left; return whether it serves."""
        self.source = self.release.wheel
        self.start()
        assert self.process is not None
        wait_until(
            lambda: self.process.poll() is not None or (self.state / "server.sock").exists(), "it serves or ended", 40
        )
        return self.process.poll() is None

    def close(self) -> None:
        if not hasattr(self, "database"):
            self.database = open_database(self.state / "oarlock.db")
        super().close()


@pytest.fixture
def begin(workspace, users, last_release):
    """Begin an instance with jobs that wait for files called `1`, `2` in its home, and end with 1, 2."""
    made = []

    def start(count: int) -> Upgraded:
        waits = [WAITS.format(workspace / "home" / str(number), number) for number in range(1, count + 1)]
        made.append(Upgraded(workspace, users[0], last_release, *waits))
        return made[0]

    yield start
    for site in made:
        site.close()


def end(site: Upgraded, job: int) -> None:
    """Let a job end, and wait until the server knows."""
    (site.home / str(job)).touch()
    site.until(lambda: site.story(job)[-1:] == ["Terminated"])
    assert (site.job(job).exit_code, site.story(job)) == (job << 8, NORMAL)


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_jobs_of_the_last_release_go_on_under_this_version(begin, killed):
    site = begin(2)
    site.serve_release(1, 2)
    if killed:
        site.kill()
        (site.state / "server.sock").unlink(missing_ok=True)
    else:
        site.stop()
        (site.home / "2").touch()  # this one ends while no server runs
    site.serve_this()
    end(site, 1)
    end(site, 2)
    site.stop()


def test_the_way_back_leads_to_the_last_release_with_its_running_jobs(begin):
    """A job of the release, and one that this version started, end under the release; then forward again."""
    site = begin(1)
    site.serve_release(1)
    site.stop()
    site.serve_this()
    site.until(lambda: site.story(1)[-1:] == ["Running"])
    site.stop()
    second = site.submit(WAITS.format(site.home / "2", 2))
    site.serve()
    site.until(lambda: site.story(second)[-1:] == ["Running"])
    site.stop()
    site.database.close()
    if migrations.form_of(RELEASES[0].version) != migrations.REVISIONS[-1]:
        assert not site.serve_again()
        assert site.process.returncode == 2
        assert "was written by a newer Oarlock" in site.log()
        assert "Install that version again" in site.log()
        words = [
            "migrate",
            "--down-to",
            RELEASES[0].version,
            "--state",
            str(site.state),
            "--config",
            str(site.settings),
        ]
        assert main(words) == 0
    assert site.serve_again(), site.log()
    for job in (1, second):
        (site.home / str(job)).touch()
    client = Client(str(site.state / "server.sock"))
    site.until(lambda: {job["state"] for job in client.jobs(ids=f"1,{second}")} == {"Terminated"})
    site.stop()
    site.serve_this()
    assert [(site.story(job), site.job(job).exit_code) for job in (1, second)] == [(NORMAL, 1 << 8), (NORMAL, 2 << 8)]
    site.stop()
