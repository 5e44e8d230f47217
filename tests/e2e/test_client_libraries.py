"""Libraries that others wrote for OAR drive a live instance as they are: execo and submitit's plugin.

Both only call `oarsub`, `oarstat`, `oarprint` and `oardel` and read what these print. They are small and need nothing
of the system, so they are among the developers' dependencies; a larger one, dask-jobqueue, brings a whole cluster
framework and is tried by a long test that makes an environment for it.
"""

import json
import os
import pwd
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from oarlock.cli.commands import module_name
from oarlock.model.job import JobState
from tests.bed import needs_root
from tests.e2e.instance import SOURCE, Instance

pytestmark = needs_root

COMMANDS = ("oarsub", "oarstat", "oardel", "oarprint")


@pytest.fixture(scope="module")
def programs(shared_workspace: Path) -> Path:
    """A folder with the commands, as an installation has them."""
    folder = shared_workspace / "commands"
    folder.mkdir()
    for name in COMMANDS:
        code = f"import sys; from {module_name(name)} import main; sys.exit(main())"
        (folder / name).write_text(f'#!/bin/sh\nPYTHONPATH={SOURCE} exec {sys.executable} -c "{code}" "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def run(site: Instance, programs: Path, program: str, python: str = sys.executable) -> dict[str, object]:
    """Run a program as a user of the cluster would; return what it printed in its last line."""
    account = pwd.getpwnam(site.user)
    ran = subprocess.run(
        [python, "-c", program], cwd=site.home, user=account.pw_uid, group=account.pw_gid, extra_groups=[],
        env={
            "PATH": f"{programs}:/usr/bin:/bin", "HOME": str(site.home), "TZ": "Europe/Paris",
            "OARLOCK_SERVER": str(site.state / "server.sock"), "USER": site.user,
        },
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    shown: dict[str, object] = json.loads(ran.stdout.splitlines()[-1])
    return shown


EXECO = """
import json, time
from execo_g5k import OarSubmission, get_current_oar_jobs, get_oar_job_info, get_oar_job_nodes, oardel, oarsub
from execo_g5k import wait_oar_job_start
from execo_g5k.config import g5k_configuration
from execo.log import logger

g5k_configuration["polling_interval"] = g5k_configuration["tiny_polling_interval"] = 0.1
begin = time.time()
[(job, _)] = oarsub([(OarSubmission(resources="network_address=2", walltime="0:10:0", name="from execo",
                                    sql_properties="state = 'Alive'", job_type=["origin=execo"],
                                    queue="default", project="tools"), None)], abort_on_error=True)
started = wait_oar_job_start(job)
info = get_oar_job_info(job)
shown = {
    "started": started, "state": info["state"], "name": info["name"], "walltime": info["walltime"],
    "late": abs(info["start_date"] - begin) < 60,
    "nodes": sorted(host.address for host in get_oar_job_nodes(job)),
    "current": [one for one, _ in get_current_oar_jobs()] == [job],
}
oardel([(job, None), (999999, None)])
print(json.dumps({**shown, "job": job}))
"""


def test_execo_submits_waits_finds_the_nodes_and_deletes(shop: Instance, programs: Path):
    shown = run(shop, programs, EXECO)
    job = int(str(shown.pop("job")))
    assert shown == {
        "started": True, "state": "Running", "name": "from execo", "walltime": 600, "late": True,
        "nodes": sorted(shop.nodes), "current": True,
    }  # fmt: skip
    shop.until(lambda: shop.job(job).state is JobState.ERROR)
    assert (shop.job(job).project, shop.job(job).types) == ("tools", ("origin=execo",))


SUBMITIT = """
import json, operator, submitit

executor = submitit.AutoExecutor(folder="logs", cluster="oar")
executor.update_parameters(timeout_min=5, oar_cores=1, oar_n="from_submitit", oar_queue="default")
job = executor.submit(operator.add, 5, 7)
with executor.batch():
    array = [executor.submit(operator.mul, number, 10) for number in (1, 2)]
failing = executor.submit(operator.truediv, 1, 0)
for one in (job, *array, failing):
    one.watcher._delay_s = 0.2
shown = {
    "sum": job.result(), "array": [one.result() for one in array], "state": job.watcher.get_state(job.job_id, "force"),
    "failure": "ZeroDivisionError" in str(failing.exception()),
    "log": "completed successfully" in job.stderr() + job.stdout(),
}
sleeping = executor.submit(__import__("time").sleep, 600)
sleeping.cancel()
print(json.dumps({**shown, "job": job.job_id, "cancelled": sleeping.job_id}))
"""


def test_submitit_runs_functions_arrays_and_cancels(shop: Instance, programs: Path):
    shown = run(shop, programs, SUBMITIT)
    cancelled, job = int(str(shown.pop("cancelled"))), int(str(shown.pop("job")))
    assert shown == {"sum": 12, "array": [10, 20], "state": "COMPLETED", "failure": True, "log": True}
    shop.until(lambda: shop.job(cancelled).state is JobState.ERROR)
    assert shop.job(job).name == "from_submitit"


DASK = """
import json
from dask.distributed import Client
from dask_jobqueue import OARCluster

cluster = OARCluster(cores=1, memory="500MB", walltime="0:10:0", queue="default", project="tools", interface="lo",
                     memory_per_core_property_name="not_applicable", local_directory=".", log_directory="dask-logs")
cluster.scale(jobs=2)
client = Client(cluster)
client.wait_for_workers(2, timeout=80)
shown = {"sum": client.submit(sum, range(10)).result(timeout=60), "workers": len(client.scheduler_info()["workers"])}
client.close()
cluster.close()
print(json.dumps(shown))
"""


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_dask_starts_its_workers_as_jobs(shop: Instance, programs: Path, shared_workspace: Path):
    folder = shared_workspace / "dask"
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "dask-jobqueue"], check=True, env=dict(os.environ), timeout=500
    )
    assert run(shop, programs, DASK, python) == {"sum": 45, "workers": 2}
    shop.until(shop.all_over)
