"""Desktop computing: a machine that the server cannot reach runs jobs, and files travel both ways."""

import itertools
import os
import time

import pytest

from oarlock.client import Client
from oarlock.model.event import EventType
from oarlock.model.job import JobState
from oarlock.store.queries.cluster import events, resources
from tests.bed import needs_root
from tests.e2e.desktops import DesktopProcess, brought_back, ended, plain, submitted, tls_instance

pytestmark = needs_root

_NUMBERS = itertools.count()
EXPIRY = 1


def fresh_name():
    return f"d{os.getpid()}x{next(_NUMBERS)}"


@pytest.fixture(scope="module")
def office(shared_workspace, users):
    """An instance where desktops add themselves, and its URL."""
    more = {"DESKTOP_COMPUTING_ALLOW_CREATE_NODE": "yes", "DESKTOP_COMPUTING_EXPIRY": EXPIRY}
    more["PROLOGUE_EXEC_FILE"] = "/bin/false"  # programs of the site do not run on desktops
    with tls_instance(shared_workspace, users[0], fresh_name(), **more) as (site, url):
        yield site, url


@pytest.fixture(scope="module")
def machine(office):
    """A desktop of root, for all tests of the module; they kill it as they like."""
    made = DesktopProcess(*office, fresh_name())
    yield made
    made.close()


@pytest.fixture
def desk(machine):
    """That desktop, connected."""
    if machine.process is None or machine.process.poll() is not None:
        machine.start()
    return machine


@pytest.mark.manual(177, 205)
def test_a_desktop_runs_a_job_and_sends_back_what_it_wrote(desk, users):
    site = desk.site
    (site.home / "in").mkdir(exist_ok=True)
    (site.home / "in" / "data").write_text("brought\n")
    (site.home / "in" / "kept").write_text("as it was\n")
    command = (
        "id -un; cat data; echo more >> data; mkdir -p a/b; echo out > a/b/c; ln -s /etc/passwd l; mkfifo p; exit 3"
    )
    job = submitted(desk, users[0], "-s", str(site.home / "in"), "-O", "/elsewhere/out.txt", command)
    assert ended(site, job) is JobState.TERMINATED
    assert site.job(job).exit_code == 3 << 8
    # Neither what was brought and is as it was, nor links and pipes.
    assert brought_back(site, job) == {
        "out.txt": f"{users[0]}\nbrought\n", f"OAR.{job}.stderr": "", "data": "brought\nmore\n", "a/b/c": "out\n",
    }  # fmt: skip
    kept = (site.state / "stageouts" / f"{job}.tgz").stat()
    assert (kept.st_uid, kept.st_mode & 0o777) == (site.job(job).uid, 0o600)
    site.until(lambda: not list((desk.state / "spool").glob(f"{job}.*")))
    assert list((desk.state / "work").iterdir()) == list((desk.state / "spool" / "out").iterdir()) == []


def test_a_plain_users_desktop_runs_all_jobs_as_that_user(office, users):
    site, url = office
    desk = DesktopProcess(site, url, fresh_name(), user=users[1])
    try:
        desk.start()
        job = submitted(desk, users[0], "id -un; pwd")
        assert ended(site, job) is JobState.TERMINATED
        assert brought_back(site, job)[f"OAR.{job}.stdout"] == f"{users[1]}\n{desk.state}/work/{job}.1\n"
        assert desk.interrupt() == 0
    finally:
        desk.close()


def about(site, node):
    """Return the expiry dates of a node's resources, and the events about the node."""
    with site.database.read() as tx:
        rows = [row.properties for row in resources.listed(tx) if row.properties["network_address"] == node]
        noted = [one.event.type for one in events.of_hosts(tx, [node])]
    return {row["expiry_date"] for row in rows}, noted


@pytest.mark.manual(177, 179)
def test_a_killed_desktop_expires_and_its_job_goes_on_and_runs_once(desk, users):
    site, began, go = desk.site, desk.site.home / f"began{desk.name}", desk.site.home / f"go{desk.name}"
    job = submitted(desk, users[0], f"echo x >> {began}; until [ -e {go} ]; do sleep 0.05; done; echo over > result")
    site.until(lambda: site.job(job).state is JobState.RUNNING)
    assert about(site, desk.name)[0] == {0}
    desk.kill()
    lost = time.time()
    site.until(lambda: set(desk.states()) == {"Suspected"})
    [date], noted = about(site, desk.name)
    assert (abs(date - lost - EXPIRY) <= 2, noted[-1]) == (True, EventType.LOG_SUSPECTED)
    assert site.job(job).state is JobState.RUNNING  # unknown is not guessed
    go.touch()
    desk.start()
    assert (set(desk.states()), about(site, desk.name)[0]) == ({"Alive"}, {0})
    assert ended(site, job) is JobState.TERMINATED
    assert (brought_back(site, job)["result"], began.read_text()) == ("over\n", "x\n")


def test_ctrl_c_ends_jobs_and_hands_idempotent_ones_back(desk, users):
    site = desk.site
    job = submitted(desk, users[0], "-t", "idempotent", "echo begun > file; sleep 100")
    site.until(lambda: site.job(job).state is JobState.RUNNING and (desk.state / f"work/{job}.1/file").exists())
    assert desk.interrupt() == 0
    assert f"jobs that are ended: {job}." in desk.said()
    assert set(desk.states()) == {"Absent"}
    assert (site.job(job).state, brought_back(site, job)["file"]) == (JobState.ERROR, "begun\n")
    assert EventType.DESKTOP_LEFT in site.events(job)
    copy = job + 1
    assert (site.job(copy).resubmit_of, site.job(copy).state) == (job, JobState.WAITING)
    desk.start()  # Alive again, and the copy runs
    site.until(lambda: site.job(copy).state is JobState.RUNNING)
    site.delete(copy)


def test_a_copy_of_a_desktop_is_refused_while_the_first_one_answers(desk, tmp_path):
    assert plain(desk.refused()) == f"`oarlock desktop` runs already with {desk.state}."
    copy = tmp_path / "copy"
    copy.mkdir()
    copy.joinpath("machine").write_text((desk.state / "machine").read_text())
    assert desk.refused("--state", str(copy)) == (
        f"oarlock: The desktop `{desk.name}` is connected already.\n  End the other `oarlock desktop` first.\n"
    )
    assert set(desk.states()) == {"Alive"}


@pytest.mark.manual(177)
def test_a_desktop_adds_itself_only_where_the_site_allows_it(strict):
    site, url, admin = strict
    desk = DesktopProcess(site, url, fresh_name())
    assert desk.refused() == (
        f"oarlock: There is no node `{desk.name}`.\n  An administrator adds it: oarnodesetting -a -h {desk.name} "
        "-p desktop_computing=YES. Or DESKTOP_COMPUTING_ALLOW_CREATE_NODE=yes in the server's settings lets "
        "desktops add themselves.\n"
    )
    assert desk.name not in [row["network_address"] for row in admin.resources()["resources"]]


@pytest.fixture
def strict(workspace, users):
    """An instance where administrators add desktops, its URL, and an administrator."""
    with tls_instance(workspace, users[0], fresh_name()) as (site, url):
        yield site, url, Client(str(site.state / "server.sock"))


def test_a_server_that_was_killed_finds_the_job_and_its_files(strict, users):
    site, url, admin = strict
    desk = DesktopProcess(site, url, fresh_name())
    admin.add_resource({"host": desk.name, "properties": {"desktop_computing": "YES"}})
    try:
        began, go = site.home / "began", site.home / "go"
        job = submitted(desk, users[0], f"echo x >> {began}; until [ -e {go} ]; do sleep 0.05; done; echo over > file")
        # The server does not look for the desktop elsewhere, not even before it has heard of it.
        site.until(lambda: set(desk.states()) == {"Suspected"})
        assert (site.job(job).state, began.exists()) == (JobState.WAITING, False)
        desk.start()
        site.until(lambda: site.job(job).state is JobState.RUNNING)
        site.kill()
        site.process = None
        go.touch()
        site.until(lambda: not (desk.state / "work" / f"{job}.1").exists())  # packed while nobody asked
        (site.state / "server.sock").unlink()
        site.serve()
        assert ended(site, job) is JobState.TERMINATED
        assert (brought_back(site, job)["file"], began.read_text()) == ("over\n", "x\n")
        admin._change("DELETE", f"/tokens/{desk.name}")
        assert desk.process.wait(timeout=20) == 2  # revoked at once, also for who is connected
        assert "That token is not known here, or no longer." in desk.said()
    finally:
        desk.close()
