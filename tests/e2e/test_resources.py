"""Resources as an administrator declares them, and what jobs then get: CPUs of a core, licences."""

import os
import subprocess
import sys

import pytest

from oarlock.cli.commands import module_name
from oarlock.model.job import FINAL, JobState
from oarlock.store.queries.cluster import resources
from oarlock.store.queries.job import jobs
from tests.bed import needs_root
from tests.e2e.instance import SOURCE, Instance, instance
from tests.e2e.terminal import job_of, piped

pytestmark = needs_root


@pytest.fixture(scope="module")
def site(shared_workspace, users):
    """An instance that serves one node, without resources that a test did not add."""
    with instance(shared_workspace, users[0], f"k{os.getpid()}n", nodes=1, cores=1) as made:
        made.serve()
        yield made


def command(site: Instance, program: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command as root."""
    code = f"import sys; from {module_name(program)} import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OARLOCK_SERVER": str(site.state / "server.sock")}
    return subprocess.run(
        [sys.executable, "-c", code, *words], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def out(site: Instance, program: str, *words: str) -> str:
    done = command(site, program, *words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def submit(site: Instance, *words: str) -> int:
    return job_of(piped(site, site.user, *words)[1].encode())


def printed(site: Instance, job: int) -> list[str]:
    site.until(lambda: site.job(job).state in FINAL)
    return (site.home / f"OAR.{job}.stdout").read_text().split()


@pytest.mark.manual(189)
def test_a_job_on_a_core_with_two_threads_has_both(site):
    node = site.nodes[0]
    first, second = sorted(os.sched_getaffinity(0))[:2]
    both = f"{first},{second}"
    assert out(site, "oarnodesetting", "-a", "-h", node, "-p", "core=7", "-p", f"cpuset={both}") == (
        f"New resource added:  {node}\nSet property core to '7'... 1 resource(s) updated.\n"
        f"Set property cpuset to '{both}'... 1 resource(s) updated.\n"
    )
    look = "grep Cpus_allowed_list /proc/self/status; oarprint core -P core,cpuset; sleep 1.1"
    job = submit(site, "-p", "core=7", "-l", "/core=1,walltime=0:10", look)
    _, allowed, *shown = printed(site, job)
    assert allowed in {both, f"{first}-{second}"}
    assert shown == ["7", both]
    assert f"cpuset={both}," in out(site, "oarnodes", "--sql", "core = 7")
    usage = out(site, "oarstat", "--usage", "-j", str(job))
    assert "of 2 cores" in usage, usage


def test_a_list_of_cpus_that_cannot_be_is_refused(site):
    refused = command(site, "oarnodesetting", "-r", "1", "-p", "cpuset=0-")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        "oarnodesetting: `cpuset` cannot be '0-': '0-' is not a CPU number.\n"
        "  Write CPU numbers of the node: `3`, `0,32` or `0-3`.\n"
    )


@pytest.mark.manual(206)
def test_licences_are_on_no_node_and_only_counted(site):
    assert out(site, "oarproperty", "-a", "licence", "-c") == "Added property: licence\n"
    for name in ("m1", "m2"):
        added = out(site, "oarnodesetting", "-a", "-h", "", "-p", "type=licence", "-p", f"licence={name}")
        assert added.startswith("New resource added:  \n")
    assert out(site, "oarproperty", "-l").split() == ["core", "cpu", "cpuset", "drain", "licence", "switch"]
    request = "/core=1+{type='licence'}/licence=2,walltime=0:10"
    first = submit(
        site, "-l", request, "wc -l < $OAR_NODE_FILE; cat $OAR_NODE_FILE; while [ ! -e go ]; do sleep 0.05; done"
    )
    site.until(lambda: site.job(first).state is JobState.RUNNING)
    second = submit(site, "-l", request, "true")
    why = out(site, "oarstat", f"--why={second}")
    assert "licence" in why, why
    assert site.job(second).state is JobState.WAITING
    (site.home / "go").touch()
    assert printed(site, first) == ["1", site.nodes[0]]
    assert printed(site, second) == []
    with site.database.read() as tx:
        held = jobs.resources_of(tx, [second])
        states = {one.properties["state"] for one in resources.listed(tx)}
    assert (len(held.get(second, ())), states) == (3, {"Alive"})


@pytest.mark.parametrize("words", [["-a", "-h", ""], ["-a", "-h", "", "-p", "type=default"]])
def test_a_resource_that_jobs_run_on_needs_a_node(site, words):
    refused = command(site, "oarnodesetting", *words)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("oarnodesetting: A resource of type `default` is on a node: jobs run there.\n")
