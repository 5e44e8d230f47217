"""A cluster of three virtual machines, bare at first: `head`, `node1` and `node2` on a network of their own.

What was typed there with what it printed is kept beside the saved machines, so that tests which need an installed
cluster go on from one in seconds.
"""

import contextlib
import hashlib
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from oarlock.client import Client
from tests.page import PAGES, typed_lines
from tests.vm import machine as machines
from tests.vm.image import LAN, Image
from tests.vm.machine import LanCard, Machine
from tests.waiting import wait_until

MEMORY_MB = {"head": 768, "node1": 512, "node2": 512}
PAGE = "installing.md"
ENDS = {"Terminated", "Error"}
PATIENCE = 600.0  # seconds; the machines are emulated, and whoever else uses this one slows them down
SLOW = "OAR_SSH_CONNECTION_TIMEOUT=120\\nFINAUD_FREQUENCY=60\\n"
# Whatever is on the machine, except what changes by itself and what packages of Debian note of their own work.
_CHANGING = (
    "/proc", "/sys", "/tmp", "/run", "/var/log", "/var/cache", "/var/lib/dpkg", "/var/lib/apt", "/var/lib/systemd",
    "/var/lib/logrotate",
)  # fmt: skip
FILES = f"find / -xdev \\( {' -o '.join(f'-path {path}' for path in _CHANGING)} \\) -prune -o -print | sort"


@dataclass
class Typed:
    """What was typed, what it printed, how long it took."""

    line: str
    printed: str
    seconds: float


@dataclass
class Cluster:
    """Three machines that reach each other."""

    machines: dict[str, Machine]
    history: list[Typed] = field(default_factory=list)

    @property
    def head(self) -> Machine:
        return self.machines["head"]

    def nodes(self) -> list[Machine]:
        """Those that run jobs."""
        return [self.machines["node1"], self.machines["node2"]]

    def type_in(self, line: str, user: str = "root", on: str = "head") -> str:
        """Type a line on a machine, root on the line that is open and users after a login; return what it printed."""
        machine, began = self.machines[on], time.monotonic()
        if user == "root":
            printed = machine.run(f"cd /root; {line}", seconds=PATIENCE)
        else:
            printed = machine.login(user, line, seconds=PATIENCE)
        self.history.append(Typed(line, printed, round(time.monotonic() - began, 1)))
        return printed

    def seconds(self, part: str) -> float:
        """Return how long the typed lines took that have this in them."""
        return sum(typed.seconds for typed in self.history if part in typed.line)

    # Jobs.

    def client(self, on: str = "head") -> Client:
        """Return a client of the server there, as root: this machine is many times as fast as those."""
        return Client(str(self.machines[on].socket("/var/lib/oarlock/server.sock")))

    def submit(self, command: str, *, resources: str = "nodes=1,walltime=1:00:00", user: str = "alice") -> int:
        """Submit a job as a user on the head; return its number."""
        printed = self.type_in(f"oarsub -l {resources} {command!r}", user)
        found = re.search(r"^OAR_JOB_ID=(\d+)$", printed, re.MULTILINE)
        assert found, printed
        return int(found[1])

    def job(self, number: int, on: str = "head") -> dict[str, object]:
        """Return what the server tells of a job."""
        [job] = self.client(on).jobs(ids=str(number), full=1)
        return dict(job)

    def last_job(self) -> int:
        """Return the number of the job that was submitted last."""
        return max(job["Job_Id"] for job in self.client().jobs(states="Running,Terminated,Error"))

    def until(self, number: int, state: str, on: str = "head") -> dict[str, object]:
        """Wait until a job has a state, and return what the server tells of it then."""
        end = time.monotonic() + PATIENCE
        while (job := self.job(number, on))["state"] != state:
            assert job["state"] not in ENDS, f"job {number} is not {state}: {job}"
            assert time.monotonic() < end, f"job {number} is not {state} within {PATIENCE} s: {job}"
            time.sleep(1)  # the server is emulated: each look costs it
        return job

    def printed(self, number: int) -> str:
        """Return what a job printed; homes are each machine's own, and the first node of the job has the file."""
        return "".join(node.run(f"cat /home/*/OAR.{number}.stdout", check=False) for node in self.nodes())

    def wait_for_server(self) -> None:
        """Wait until the unit of the server is up: a boot starts it."""
        is_up = "systemctl is-active --quiet oarlock && echo up"
        wait_until(lambda: self.head.run(is_up, check=False), "the server", PATIENCE)

    # Machines.

    def logs(self) -> str:
        """Return what the machines that still answer have logged last."""
        logs = []
        for machine in self.machines.values():
            with contextlib.suppress(AssertionError, subprocess.SubprocessError):
                logs += [f"{machine.name}:", machine.run("journalctl -b --no-pager -n 80")]
        return "\n".join(logs)

    def in_all(self, act: Callable[[Machine], object]) -> None:
        """Do something on all machines at the same time."""
        with ThreadPoolExecutor(len(self.machines)) as threads:
            list(threads.map(act, self.machines.values()))

    def save(self, folder: Path) -> None:
        """Save the machines as they are, with what was typed, and end them."""
        self.in_all(lambda machine: machine.run("sync"))
        self.in_all(Machine.save)
        making = folder.with_suffix(".making")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        for name, machine in self.machines.items():
            shutil.move(machine.home / "disk.qcow2", making / name)
        (making / "typed.json").write_text(json.dumps([vars(typed) for typed in self.history]))
        shutil.rmtree(folder, ignore_errors=True)
        making.rename(folder)


@contextlib.contextmanager
def cluster(image: Image, workspace: Path, checkpoint: Path | None = None) -> Iterator[Cluster]:
    """Start three bare machines, or those of a checkpoint; nothing is left of them at the end."""
    port = machines.free_port()

    def place(name: str) -> Machine:
        home = workspace / name
        home.mkdir()
        disk = checkpoint / name if checkpoint else machines.saved(image, name, LAN[name], MEMORY_MB[name])
        shutil.copy(disk, home / "disk.qcow2")
        return Machine(image, home, name, LanCard(LAN[name], port), MEMORY_MB[name])

    with ThreadPoolExecutor(len(LAN)) as threads:
        made = dict(zip(LAN, threads.map(place, LAN), strict=True))
    history = [Typed(**typed) for typed in json.loads((checkpoint / "typed.json").read_text())] if checkpoint else []
    started = Cluster(made, history)
    try:
        for machine in made.values():
            machine.power_on(saved=True)
        started.in_all(Machine.wait_for_login)
        yield started
    finally:
        for machine in made.values():
            machine.cut_power()
            shutil.rmtree(machine.home)


def installed(cluster: Cluster, package: Path) -> None:
    """Type what the page Installing says, from the package to the resources."""
    head = cluster.head
    for machine in cluster.machines.values():
        cluster.type_in(FILES, on=machine.name)
    cluster.type_in("for name in head node1 node2; do ping -c 1 -W 10 $name; done")
    head.copy(cluster.head.image.key, "/root/.ssh/id_ed25519")
    cluster.type_in("chmod 600 .ssh/id_ed25519; echo StrictHostKeyChecking=accept-new > .ssh/config")
    head.copy(package, f"/root/{package.name}")
    setup, start = typed_lines(PAGE, "2. The server")
    for line in (*typed_lines(PAGE, "1. The package"), setup):
        cluster.type_in(line)
    cluster.type_in(f"printf '{SLOW}' >> /etc/oarlock/oar.conf")
    cluster.type_in(start)
    *copies, doctor = typed_lines(PAGE, "3. The nodes")
    for line in copies:
        cluster.type_in(line)
    cluster.type_in("rm .ssh/id_ed25519")  # from now on only the key of the server opens nodes
    cluster.type_in(f"{doctor} || test $? = 1")
    for line in typed_lines(PAGE, "4. The resources"):
        cluster.type_in(line)


@contextlib.contextmanager
def from_checkpoint(image: Image, workspace: Path, place: Path, package: Callable[[], Path]) -> Iterator[Cluster]:
    """Start a cluster on which the package was installed, the server stopped; it is installed and saved if need be."""
    if not place.exists():
        with cluster(image, workspace) as made:
            installed(made, package())
            made.head.run("systemctl stop oarlock", seconds=PATIENCE)
            made.save(place)
    with cluster(image, workspace, place) as made:
        yield made


def checkpoint(image: Image, name: str, made_of: str) -> Path:
    """Return where a checkpoint is, or will be; those of other code are removed."""
    sources = Path(__file__).read_bytes() + (PAGES / PAGE).read_bytes() + machines.recipe().encode() + made_of.encode()
    folder = image.home / f"{name}-{hashlib.sha256(sources).hexdigest()[:12]}"
    for older in image.home.glob(f"{name}-*"):
        if older != folder:
            shutil.rmtree(older)
    return folder
