"""A real Slurm for the corpus: munged, slurmctld and two slurmd on this machine, without systemd and cgroups."""

import os
import shutil
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

from tests.slurm.corpus import FIRST_NUMBER
from tests.waiting import wait_until

NODES = ["oarnode1", "oarnode2"]
CONF = """
ClusterName=corpus
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={controller}
FirstJobId={first}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=1,sched_interval=1
MpiDefault=none
ReturnToService=2
KillWait=2
MinJobAge=3600
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
GresTypes=gpu
NodeName=oarnode[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first_port}-{second_port}] CPUs=2 \
RealMemory=2048 Gres=gpu:1 Feature=ib
PartitionName=main Nodes=oarnode[1-2] Default=YES State=UP MaxTime=INFINITE DefaultTime=60
"""


class RealSlurm:
    """Two nodes of two cores each, with a folder and ports of their own."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}
        base = _free_ports(3)
        ports = {"controller": base, "first_port": base + 1, "second_port": base + 2}
        text = CONF.format(folder=folder, host=socket.gethostname(), first=FIRST_NUMBER, **ports)
        (folder / "slurm.conf").write_text(text)
        (folder / "gres.conf").write_text("NodeName=oarnode[1-2] Name=gpu File=/dev/zero\n")
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (folder / name).mkdir()
        self._munge()
        conf = str(folder / "slurm.conf")
        self._start("slurmctld", "slurmctld", "-D", "-f", conf)
        for node in NODES:
            self._start(node, "slurmd", "-D", "-N", node, "-f", conf)
        wait_until(lambda: self._idle() == 2, what="two idle nodes", seconds=60)

    def _idle(self) -> int:
        command = ["sinfo", "-h", "-N", "-o", "%T"]
        environment = {**os.environ, **self.environment}
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=30)
        return ran.stdout.split().count("idle")

    def _munge(self) -> None:
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        files = [f"--{name}-file={self.folder}/munge.{name}" for name in ("log", "pid", "seed")]
        self._start("munged", "munged", "--foreground", "--force", f"--key-file={key}", *files,
                    f"--socket={self.folder}/munge.socket")  # fmt: skip
        wait_until((self.folder / "munge.socket").exists, what="munge", seconds=20)

    def _start(self, name: str, *command: str) -> None:
        log = self._stack.enter_context((self.folder / f"{name}.out").open("wb"))
        path = shutil.which(command[0], path="/usr/sbin:/usr/bin")
        assert path is not None
        environment = {**os.environ, **self.environment}
        program = subprocess.Popen([path, *command[1:]], env=environment, stdout=log, stderr=log)
        self._stack.callback(program.wait, 60)
        self._stack.callback(program.terminate)


def _free_ports(count: int) -> int:
    """Return the first of so many ports in a row that nobody uses."""
    for base in range(17_800, 32_000, 10):
        with ExitStack() as stack:
            try:
                for port in range(base, base + count):
                    stack.enter_context(socket.socket()).bind(("", port))
            except OSError:
                continue
            return base
    raise AssertionError("all ports are taken")
