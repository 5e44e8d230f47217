"""A virtual machine: QEMU without KVM, reached by ssh through a port of this machine's loopback.

A machine is booted once and saved; the next start goes on from there in seconds. After a power cut it boots in full:
only so does it get another boot id. Machines of a cluster have a second card each; these are on one multicast group of
the loopback, so that any of them may come and go.
"""

import contextlib
import hashlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from oarlock.server.nodes import ssh
from oarlock.server.nodes.command import NodeCommand
from tests.vm.image import Image
from tests.waiting import wait_until

BOOT_SECONDS = 240
SAVED = "booted"
MEMORY_MB = 512
CPUS = 2

# q35: the smaller `microvm` hangs with one CPU. `panic=-1` and `-no-reboot`: a kernel that panics ends QEMU.
_MACHINE = ("-machine", "q35,accel=tcg", "-nodefaults", "-no-user-config", "-nographic", "-no-reboot")
# The time stamp counter is measured at boot, on a busy machine wrongly by up to seven times; HPET is not measured.
_KERNEL = "console=ttyS0 quiet root=/dev/vda rw panic=-1 net.ifnames=0 mitigations=off tsc=unstable clocksource=hpet"


@dataclass(frozen=True, slots=True)
class LanCard:
    """The second card of a machine: its address, and the port of the group of its cluster."""

    address: str
    port: int

    @property
    def words(self) -> list[str]:
        """What QEMU is told; the hardware address follows from the other one."""
        last = int(self.address.rpartition(".")[2])
        group = f"socket,id=lan,mcast=230.85.0.1:{self.port},localaddr=127.0.0.1"
        return ["-netdev", group, "-device", f"virtio-net-pci,netdev=lan,mac=52:54:00:0a:0d:{last:02x}"]


@dataclass
class Machine:
    """One of them. Its files are in `home`: the overlay, the serial line, the monitor."""

    image: Image
    home: Path
    name: str
    lan: LanCard | None = None
    memory_mb: int = MEMORY_MB
    port: int = 0
    process: subprocess.Popen[bytes] | None = None
    _masters: list[subprocess.Popen[bytes]] = field(default_factory=list)

    # Power.

    def start(self, *, saved: bool) -> None:
        """Go on from the saved state, or boot; wait until root can log in."""
        self.power_on(saved=saved)
        self.wait_for_login()

    def power_on(self, *, saved: bool) -> None:
        """Let it go on from the saved state, or begin to boot."""
        self.port = self.port or free_port()  # who was here before finds it where it was
        words = [*self._words(), *(("-loadvm", SAVED) if saved else ())]
        with (self.home / "qemu.log").open("wb") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        (self.home / "known_hosts").write_text(f"{self.name} {self.image.host_key}")

    def _words(self) -> list[str]:
        drive = f"id=d,file={self.home}/disk.qcow2,format=qcow2,if=none,cache=writeback"
        lan = self.lan
        network = f"user,id=n,restrict=on,hostfwd=tcp:127.0.0.1:{self.port}-:22"
        return [
            "nice", "-n", "10", "qemu-system-x86_64", *_MACHINE, "-smp", str(CPUS), "-m", str(self.memory_mb),
            "-kernel", str(self.image.kernel), "-initrd", str(self.image.initrd),
            "-append", f"{_KERNEL} systemd.hostname={self.name}{f' lan={lan.address}/24' if lan else ''}",
            "-drive", drive, "-device", "virtio-blk-pci,drive=d",
            "-netdev", network, "-device", "virtio-net-pci,netdev=n", *(lan.words if lan else ()),
            "-serial", f"file:{self.home}/serial", "-monitor", f"unix:{self.home}/monitor,server=on,wait=off",
        ]  # fmt: skip

    def wait_for_login(self) -> None:
        """Wait until root can log in, and set the clock: that of a saved machine stood still."""
        self._wait_for_master()
        self.run(f"date -s @{time.time():.3f}")

    def _wait_for_master(self) -> None:
        end = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < end:
            assert self.process is not None
            assert self.process.poll() is None, f"QEMU ended: {(self.home / 'qemu.log').read_text()}"
            if _listens(self.port) and self._open_master():
                return
            time.sleep(0.2)
        raise AssertionError(f"{self.name} did not boot: {(self.home / 'serial').read_text()[-3000:]}")

    def save(self) -> None:
        """Save the state and end."""
        self._close_master()
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.settimeout(120)
            monitor.connect(str(self.home / "monitor"))
            for command in (b"", f"savevm {SAVED}\n".encode()):
                monitor.sendall(command)
                said = b""
                while not said.endswith(b"(qemu) "):
                    said += monitor.recv(4096)
            assert b"Error" not in said, said
        self.cut_power()

    def cut_power(self) -> None:
        """End the machine between two instructions."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
        self._close_master()

    def boot_again(self) -> None:
        """Wait until it has shut itself down, and boot it."""
        assert self.process is not None
        self.process.wait(BOOT_SECONDS)
        self.cut_power()
        self.start(saved=False)

    # The network.

    def ssh(self, *more: str) -> list[str]:
        """OPENSSH_CMD for this machine, which is known by its name and not by its port."""
        options = {
            "UserKnownHostsFile": f"{self.home}/known_hosts",
            "HostKeyAlias": self.name,
            "IdentitiesOnly": "yes",
            "KexAlgorithms": "curve25519-sha256",
            "LogLevel": "ERROR",
        }
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return ["ssh", "-F", "none", "-p", str(self.port), "-i", str(self.image.key), *words, *more]

    def way(self) -> NodeCommand:
        """The way of the server."""
        return ssh("127.0.0.1", command=self.ssh(), connect_seconds=30, alive_seconds=10)

    def _open_master(self) -> bool:
        """Open root's own line, on which the test looks at the machine; a login is dear under emulation."""
        options = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "StrictHostKeyChecking=yes")
        command = self.ssh(*options, "-M", "-N", "-S", f"{self.home}/master", "-l", "root", "127.0.0.1")
        master = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + 30
        while master.poll() is None and time.monotonic() < end:
            if (self.home / "master").exists():
                self._masters.append(master)
                return True
            time.sleep(0.05)
        _end(master)
        return False

    def _close_master(self) -> None:
        while self._masters:
            _end(self._masters.pop())
        for name in ("master", "forwarded"):
            (self.home / name).unlink(missing_ok=True)

    def run(self, command: str, *, check: bool = True, seconds: float = 60) -> str:
        """Run a command as root, beside the job, and give what it printed."""
        words = self.ssh("-S", f"{self.home}/master", "-l", "root", "127.0.0.1", command)
        return _output(words, command, check=check, seconds=seconds)

    def login(self, user: str, command: str, *, seconds: float = 60) -> str:
        """Log in, run a command, log out: a session of its own, from its beginning to its end."""
        words = self.ssh("-o", "BatchMode=yes", "-S", "none", "-l", user, "127.0.0.1", command)
        return _output(words, command, check=True, seconds=seconds)

    def socket(self, path: str) -> Path:
        """Return a socket of this machine that leads to one of that machine, whose peer is root there."""
        here = self.home / "forwarded"
        if not here.exists():
            forward = ("-O", "forward", "-L", f"{here}:{path}")
            words = self.ssh("-S", f"{self.home}/master", *forward, "-l", "root", "127.0.0.1")
            _output(words, path, check=True, seconds=60)
        return here

    def copy(self, file: Path, to: str) -> None:
        """Write a file of this machine there."""
        words = self.ssh("-S", f"{self.home}/master", "-l", "root", "127.0.0.1", f"cat > {to}")
        with file.open("rb") as content:
            subprocess.run(words, stdin=content, check=True, timeout=120)


def _output(words: list[str], command: str, *, check: bool, seconds: float) -> str:
    ran = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False)
    assert not check or ran.returncode == 0, f"{command}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    """Whether sshd itself answers; QEMU takes the connection long before."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as line:
        return line.recv(4).startswith(b"SSH")
    return False


def saved(image: Image, name: str, lan: str = "", memory_mb: int = MEMORY_MB) -> Path:
    """Give the overlay of a machine that was booted and saved; made once for an image and a QEMU."""
    folder = image.home / f"{name}-{recipe()}-{memory_mb}"
    if not folder.exists():
        making = image.home / f"{name}-making"
        for older in image.home.glob(f"{name}-*"):
            shutil.rmtree(older)
        making.mkdir()
        base = ("-b", str(image.disk), "-F", "raw")
        command = ["qemu-img", "create", "-q", "-f", "qcow2", *base, f"{making}/disk.qcow2"]
        subprocess.run(command, check=True, timeout=60)
        machine = Machine(image, making, name, LanCard(lan, free_port()) if lan else None, memory_mb)
        try:
            machine.start(saved=False)
            wait_until(lambda: machine.run("systemctl is-system-running --wait", check=False), seconds=120)
            machine.save()
        finally:
            machine.cut_power()
        making.rename(folder)
    return folder / "disk.qcow2"


def recipe() -> str:
    """Name what a saved state depends on besides the image: QEMU, and how it is called."""
    version = subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, check=True, timeout=20).stdout
    return hashlib.sha256(Path(__file__).read_bytes() + version).hexdigest()[:12]


@contextlib.contextmanager
def machine(image: Image, workspace: Path, name: str) -> Iterator[Machine]:
    """Start a machine from its saved state in a folder of its own; nothing is left of it at the end."""
    home = workspace / name
    home.mkdir()
    shutil.copy(saved(image, name), home / "disk.qcow2")
    made = Machine(image, home, name)
    try:
        made.start(saved=True)
        yield made
    finally:
        made.cut_power()
        shutil.rmtree(home)
