"""oarsub -s on whole instances: packed where it is typed, brought to every node of the job, unpacked as its user."""

import hashlib
import json
import os
import signal
import subprocess

import pytest

from oarlock.model.job import FINAL, JobState
from tests.bed import needs_root
from tests.e2e.cluster import cluster
from tests.e2e.terminal import job_of, piped
from tests.node.archives import archive, changed

pytestmark = needs_root

BOTH = "/network_address=2/core=1,walltime=1"


@pytest.fixture
def files(shop):
    """A directory with files."""
    folder = shop.home / f"input{os.urandom(4).hex()}"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "data").write_text("brought\n")
    (folder / "run").write_text("#!/bin/sh\ncat sub/data\n")
    (folder / "run").chmod(0o755)
    (folder / "sub" / "name").write_text(folder.name)  # no other test has the same archive
    return folder


def submitted(site, user, *words):
    code, out, err = piped(site, user, *map(str, words))
    assert code == 0, err
    return job_of(out.encode())


def ended(site, job):
    site.until(lambda: site.job(job).state in FINAL)
    return site.job(job).state


def rows(site):
    with site.database.read() as tx:
        return [tuple(row) for row in tx.exec_driver_sql("SELECT md5sum, size, user_name FROM files ORDER BY 1")]


@pytest.mark.manual(30, 98)
def test_a_directory_is_in_the_jobs_directory_on_each_node(shop, users, files):
    before = len(rows(shop))
    work = shop.home / f"work{os.urandom(4).hex()}" / "deep"
    jobs = [
        job_of(
            piped(shop, users[0], "-s", str(files), "-d", str(work), "-l", BOTH, "./run; stat -c %U run")[1].encode()
        )
        for _ in range(2)
    ]
    for job in jobs:
        assert ended(shop, job) is JobState.TERMINATED, shop.events(job)
        assert (work / f"OAR.{job}.stdout").read_text() == f"brought\n{users[0]}\n"
    assert len(rows(shop)) == before + 1  # the same content was stored, and travelled, once
    assert {shop.job(job).file_id for job in jobs} == {shop.job(jobs[0]).file_id}
    kept = [list((shop.state / "spool" / node / "files").iterdir()) for node in shop.nodes]
    assert all(len(each) >= 1 for each in kept)
    assert sorted(path.name for path in work.iterdir() if not path.name.startswith("OAR.")) == ["run", "sub"]


def test_an_archive_is_named_by_its_sum_once_it_was_sent(shop, users, files):
    packed = shop.home / f"{files.name}.tgz"
    packed.write_bytes(archive({"hello": b"from the archive\n"}))
    md5sum = hashlib.md5(packed.read_bytes()).hexdigest()
    code, _, err = piped(shop, users[0], "--stagein-md5sum", md5sum, "true")
    assert (code, "no archive of yours with the sum" in err) == (12, True)
    code, _, err = piped(shop, users[0], "-s", str(packed), "--stagein-md5sum", "0" * 32, "true")
    assert (code, f"has the MD5 sum {md5sum}, not 0000" in err) == (12, True)
    script = shop.home / f"{files.name}.sh"
    script.write_text(f"#!/bin/sh\n#OAR -s {packed}\ncat hello\n")
    script.chmod(0o755)
    work = shop.home / f"s{files.name}"
    work.mkdir()
    work.chmod(0o777)
    first = submitted(shop, users[0], "-d", work, "-S", script)
    assert ended(shop, first) is JobState.TERMINATED, shop.events(first)
    again = piped(shop, users[0], "-d", str(work), "--array=2", "--stagein-md5sum", md5sum, "cat hello", "-J")[1]
    for job in json.loads(again.partition("{")[1] + again.partition("{")[2].partition("#")[0])["job_ids"]:
        assert ended(shop, job) is JobState.TERMINATED, shop.events(job)
        assert (work / f"OAR.{job}.stdout").read_text() == "from the archive\n"


def test_what_is_refused_leaves_nothing_and_says_why(shop, users, files):
    before, bad = rows(shop), shop.home / f"{files.name}.bad.tgz"
    bad.write_bytes(archive({"l": changed(type=b"2", linkname="/etc/passwd")}))
    (files / "link").symlink_to("/etc")
    cases = {
        str(bad): "The archive is not taken: l is a link: only files and directories are brought.",
        str(files): f"{files}/link is a link: only files and directories are brought to nodes.",
        str(files / "run"): f"{files}/run is not compressed with gzip.",
        str(files / "none"): f"{files}/none cannot be read: No such file or directory.",
        "/dev/null": "/dev/null is neither a directory nor an archive.",
    }
    for path, says in cases.items():
        code, out, err = piped(shop, users[0], "-s", path, "true")
        assert (code, out, err.partition("\n")[0]) == (12, "", f"oarsub: {says}")
    assert rows(shop) == before
    assert not list((shop.state / "stageins").glob("upload.*"))


def test_a_job_whose_files_would_be_lost_ends_with_a_sentence(shop, users, files):
    work = shop.home / f"mine{files.name}"
    (work / "sub").mkdir(parents=True)
    (work / "sub" / "data").write_text("edited after it was submitted\n")
    os.utime(work / "sub" / "data", (2**31, 2**31))
    subprocess.run(["chown", "-R", users[0], work], check=True)
    job = submitted(shop, users[0], "-s", files, "-d", work, "-l", BOTH, "./run")
    assert (ended(shop, job), "STAGE_IN_ERROR" in shop.events(job)) == (JobState.ERROR, True)
    assert f"{work}/sub/data is there already, and is newer" in shop.job(job).message
    assert [path.name for path in work.iterdir()] == ["sub"]


@pytest.mark.component("sshd")
@pytest.mark.component("ip")
def test_files_travel_by_ssh_to_disks_that_nobody_shares(workspace, two_users):
    with cluster(workspace, two_users[0], ("", "")) as site:
        for machine in site.machines:
            scratch = machine.home / "disk" / "scratch"
            scratch.mkdir()
            scratch.chmod(0o777)
        content = os.urandom(3 << 20)
        (site.home / "data.tgz").write_bytes(archive({"data": content}))
        site.serve()
        work = site.rack.disk / "scratch" / "work"
        command = f"sha256sum data; oarsh $(uniq $OAR_NODEFILE | tail -1) sha256sum {work}/data"
        out = piped(
            site, two_users[0], "-s", "data.tgz", "-d", str(work), "-l", BOTH, "-O", f"{site.home}/out", command
        )
        assert ended(site, job_of(out[1].encode())) is JobState.TERMINATED, site.log()[-2000:]
        both = [(machine.home / "disk" / "scratch" / "work" / "data").read_bytes() for machine in site.machines]
        assert both == [content] * 2
        assert (site.home / "out").read_text().count(hashlib.sha256(content).hexdigest()) == 2


def test_files_on_their_way_hold_up_neither_oardel_nor_a_restart(own, users):
    """The node is stopped after it was reached, so that nothing arrives there."""
    job = submitted(own, users[0], "true")
    assert ended(own, job) is JobState.TERMINATED
    [program] = own.node_programs()
    os.kill(program, signal.SIGSTOP)
    (own.home / "in").mkdir()
    (own.home / "in" / "data").write_bytes(os.urandom(1 << 20))
    words = ("-s", "in", "-d", own.home / "made", "-l", "/core=1,walltime=1")
    deleted, kept = submitted(own, users[0], *words, "true"), submitted(own, users[0], *words, "cmp data ../in/data")
    own.until(lambda: [own.job(one).state for one in (deleted, kept)] == [JobState.LAUNCHING] * 2)
    own.delete(deleted)
    assert own.job(deleted).state is JobState.ERROR
    own.kill()
    os.kill(program, signal.SIGKILL)
    own.serve()
    assert (ended(own, kept), own.job(kept).exit_code) == (JobState.TERMINATED, 0)
