"""A session of PAM that is opened inside of a job: it gets the limits of its own user, and stays in the job."""

import os
import resource
import subprocess
from pathlib import Path

import pytest

from oarlock.model.job import JobState
from tests.bed import needs_root, needs_v1
from tests.e2e.test_oarsh_in_jobs import submitted

LIMITS = Path("/etc/security/limits.d")
FILES = 333
pytestmark = [
    needs_root, needs_v1, pytest.mark.soak,
    pytest.mark.skipif(not LIMITS.is_dir(), reason="PAM reads no limits.d here"),
]  # fmt: skip


@pytest.fixture
def limited(users):
    """A user whom the site's limits give few open files."""
    path = LIMITS / f"oarlock-test-{os.getpid()}.conf"
    path.write_text(f"{users[0]} hard nofile {FILES}\n{users[0]} soft nofile {FILES}\n")
    yield users[0]
    path.unlink()


def test_a_session_of_pam_in_a_job_has_its_limits_and_stays_in_it(shop, limited):
    job = submitted(shop, limited, "ulimit -Hn > limit.$OAR_JOB_ID; sleep 600", "/core=1,walltime=1")
    shop.until(lambda: shop.job(job).state is JobState.RUNNING)
    shop.until(lambda: (shop.home / f"limit.{job}").exists() and (shop.home / f"limit.{job}").read_text() != "")
    # No session of PAM is opened for a job: it has the limits of the node program, which root's login or unit gave it.
    assert int((shop.home / f"limit.{job}").read_text()) == resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    group = next(Path("/sys/fs/cgroup/memory/oarlock").glob(f"*/{limited}_{job}"))
    groups = f"/sys/fs/cgroup/*/oarlock/*/{limited}_{job}/cgroup.procs"
    shows = "echo $(ulimit -Hn) $(grep :memory: /proc/self/cgroup); exec sleep 600"
    with subprocess.Popen(
        ["sh", "-c", f'for group in {groups}; do echo $$ > $group; done; exec su {limited} -s /bin/sh -c "$0"', shows],
        stdout=subprocess.PIPE, text=True,
    ) as opened:  # fmt: skip
        assert opened.stdout is not None
        files, place = opened.stdout.readline().split()
        assert (int(files), place.endswith(f"/{limited}_{job}")) == (FILES, True)
        shop.delete(job)
        assert opened.wait(30) != 0  # it ended with the job
    assert not group.exists()
