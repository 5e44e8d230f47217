"""The ranks of an MPI job are the job's on each of its nodes: in its group, measured with it, killed with it."""

import os
from pathlib import Path

import pytest

from oarlock.client import Client
from oarlock.model.job import JobState
from tests.bed import needs_root, needs_v1
from tests.e2e.test_oarsh_in_jobs import submitted

pytestmark = [needs_root, needs_v1, pytest.mark.soak]

RANKS = """
cat > rank.sh <<'END'
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
echo $$ > pid.$rank.$OAR_JOB_ID.new && mv pid.$rank.$OAR_JOB_ID.new pid.$rank.$OAR_JOB_ID
while :; do :; done
END
install -d -m 700 "$PWD/ompi.$(hostname -s).$(id -u)" && export TMPDIR=$PWD OMPI_MCA_orte_tmpdir_base=$PWD
for turn in 1 2 3 4 5; do START sh $PWD/rank.sh && break; done
"""
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return what a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@pytest.mark.parametrize(
    "start",
    [
        pytest.param("mpirun", marks=pytest.mark.component("mpirun")),
        pytest.param("mpiexec.hydra", marks=pytest.mark.component("mpiexec.hydra")),
    ],
)
def test_ranks_are_in_the_group_measured_and_killed_with_the_job(shop, users, start):
    job = submitted(shop, users[0], RANKS.replace("START", start))
    files = [shop.home / f"pid.{rank}.{job}" for rank in range(2)]
    shop.until(lambda: all(path.exists() for path in files))
    pids = [int(path.read_text()) for path in files]
    for node, pid in zip(shop.nodes, pids, strict=True):
        group = Path(f"/sys/fs/cgroup/memory/oarlock/{node}/{users[0]}_{job}/cgroup.procs")
        assert pid in map(int, group.read_text().split()), f"rank on {node}"
    shop.until(lambda: min(map(cpu_seconds, pids)) > 2.0)
    used = sum(map(cpu_seconds, pids))
    shop.delete(job)
    assert shop.job(job).state is JobState.ERROR
    shop.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    client = Client(str(shop.state / "server.sock"))

    def measured() -> float:
        [usage] = client.usage([job])
        return float(usage.get("cpu_seconds") or 0)

    shop.until(lambda: measured() >= used)
    assert measured() < 3 * used + 5
