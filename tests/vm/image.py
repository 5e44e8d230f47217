"""Images of virtual machines. A node's is Debian with systemd, sshd and python3, and nothing that those do not need;
one for the machines of a cluster has what a site's machines have besides, before Oarlock is on them.

Built once into `build/vm`, from Debian's packages, as root; what it is built from is in the name of the folder.
"""

import fcntl
import hashlib
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
PACKAGES = ("systemd", "systemd-sysv", "dbus", "libpam-systemd", "openssh-server", "python3")
# Added by apt in the tree, which solves what debootstrap does not. The machines reach no archive later.
SITE_PACKAGES = (
    "openssh-client",
    "iproute2",
    "iputils-ping",
    "procps",
    "openmpi-bin",
    "postgresql",
    "logrotate",
    "nftables",
)
KERNEL = "linux-image-cloud-amd64"
PEOPLE = ("alice", "bob")

# Debian's cloud kernel has ext4 built in; disk and network of the machine are modules.
MODULES = ("virtio_pci", "virtio_blk", "virtio_net")

# QEMU's user network: the guest is always 10.0.2.15. The root needs no udev and no network service then. A machine of a
# cluster has a second card for its neighbours, with the address that the kernel's command line says.
INIT = """\
#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /root
/bin/busybox mount -t devtmpfs dev /dev
for module in {modules}; do /bin/busybox insmod /$module.ko; done
/bin/busybox ip link set lo up
/bin/busybox ip addr add 10.0.2.15/24 dev eth0
/bin/busybox ip link set eth0 up
/bin/busybox mount -t proc proc /proc
for word in $(/bin/busybox cat /proc/cmdline); do
  case $word in lan=*) /bin/busybox ip addr add ${{word#lan=}} dev eth1; /bin/busybox ip link set eth1 up;; esac
done
/bin/busybox umount /proc
/bin/busybox mount -t ext4 /dev/vda /root
/bin/busybox mount -o move /dev /root/dev
exec /bin/busybox switch_root /root /sbin/init
"""

# The strictest logind there is: whatever is left in a session dies with it, root's included. (An empty list of excluded
# users would mean root.) RemoveIPC=yes is the default.
LOGIND = """\
[Login]
KillUserProcesses=yes
KillExcludeUsers=nobody
UserStopDelaySec=0
"""

# What a node of a cluster has no use for, or what would only cost time here.
MASKED = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty@tty1.service",
    "serial-getty@ttyS0.service",
    "systemd-binfmt.service",
    "systemd-hwdb-update.service",
    "systemd-random-seed.service",
    "systemd-timesyncd.service",
    "systemd-update-utmp.service",
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What an image is made from, beyond what all have."""

    name: str
    size: str
    packages: tuple[str, ...] = ()
    hosts: str = ""
    disabled: tuple[str, ...] = ()  # units that a test starts where it needs them


NODE = Recipe("node", "1G")
LAN = {"head": "10.213.0.1", "node1": "10.213.0.2", "node2": "10.213.0.3"}
SITE = Recipe(
    "site", "4G", SITE_PACKAGES,
    hosts="127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in LAN.items()),
    disabled=("postgresql", "nftables"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Image:
    """What a machine is started from; machines keep what they change in overlays of their own."""

    home: Path

    @property
    def disk(self) -> Path:
        return self.home / "root.ext4"

    @property
    def kernel(self) -> Path:
        return self.home / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.home / "initrd.cpio"

    @property
    def key(self) -> Path:
        """The key that opens every account."""
        return self.home / "key"

    @property
    def host_key(self) -> str:
        """The public half of what every machine shows of itself."""
        return (self.home / "hostkey.pub").read_text()


def built(recipe: Recipe = NODE) -> Image:
    """Give the image, made now if need be: some two minutes once. Whoever comes second waits for the first."""
    source = Path(__file__).read_bytes() + repr(recipe).encode()
    folder = ROOT / "build" / "vm"
    folder.mkdir(parents=True, exist_ok=True)
    image = Image(folder / f"{recipe.name}-{hashlib.sha256(source).hexdigest()[:12]}")
    with (folder / f"lock-{recipe.name}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not image.home.exists():
            _build(folder, image, recipe)
    return image


def _build(folder: Path, image: Image, recipe: Recipe) -> None:
    """Make it aside, and give it its name when it is whole."""
    for older in folder.glob(f"{recipe.name}-*/"):
        shutil.rmtree(older)
    making = Image(Path(tempfile.mkdtemp(dir=folder, prefix=f"{recipe.name}-")))
    tree = making.home / "tree"
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(making.key))
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", f"{making.home}/hostkey")
    _bootstrap(tree)
    if recipe.packages:
        _add_packages(tree, recipe)
    _furnish(tree, making.home)
    if recipe.hosts:
        (tree / "etc/hosts").write_text(recipe.hosts)
    _run("mke2fs", "-q", "-t", "ext4", "-d", str(tree), str(making.disk), recipe.size)
    _boot_files(making)
    shutil.rmtree(tree)
    making.home.rename(image.home)


def _run(*command: str, seconds: int = 600, cwd: Path | None = None) -> str:
    """Run a command to its end, behind all others; its own words if it fails."""
    ran = subprocess.run(
        ("nice", "-n", "10", *command), cwd=cwd, timeout=seconds, check=False,
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, f"{' '.join(command)}: {ran.stdout[-2000:]} {ran.stderr[-2000:]}"
    return ran.stdout


def _bootstrap(tree: Path) -> None:
    """Unpack Debian. Whatever is mounted on the way is gone with the namespace."""
    include = "--include=" + ",".join(PACKAGES)
    spaces = ("unshare", "--mount", "--propagation", "private")
    _run(*spaces, "debootstrap", "--variant=minbase", include, SUITE, str(tree), MIRROR)


def _add_packages(tree: Path, recipe: Recipe) -> None:
    """Add packages by the tree's own apt, which starts nothing; names are looked up as on this machine."""
    script = f"""
    set -e
    mount -t proc proc {tree}/proc
    for file in /etc/resolv.conf /etc/hosts; do touch {tree}$file; mount --bind $file {tree}$file; done
    printf '#!/bin/sh\\nexit 101\\n' > {tree}/usr/sbin/policy-rc.d
    chmod 755 {tree}/usr/sbin/policy-rc.d
    export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
    chroot {tree} apt-get update --quiet
    chroot {tree} apt-get install --yes --quiet --no-install-recommends {" ".join(recipe.packages)}
    chroot {tree} systemctl disable {" ".join(recipe.disabled)}
    rm {tree}/usr/sbin/policy-rc.d
    """
    _run("unshare", "--mount", "--propagation", "private", "sh", "-c", script)


def _furnish(tree: Path, home: Path) -> None:
    """Add the accounts and the keys; leave out what every machine must have for itself."""
    authorized = (home / "key.pub").read_text()
    for name in PEOPLE:
        _run("chroot", str(tree), "useradd", "--create-home", "--shell", "/bin/bash", "--password", "*", name)
        _run("chroot", str(tree), "install", "-d", "-o", name, "-g", name, "-m", "700", f"/home/{name}/.ssh")
        (tree / f"home/{name}/.ssh/authorized_keys").write_text(authorized)
    (tree / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
    (tree / "root/.ssh/authorized_keys").write_text(authorized)
    for old in (tree / "etc/ssh").glob("ssh_host_*"):
        old.unlink()
    shutil.copy(home / "hostkey", tree / "etc/ssh/ssh_host_ed25519_key")
    (tree / "etc/ssh/ssh_host_ed25519_key").chmod(0o600)
    (tree / "etc/ssh/sshd_config.d/test.conf").write_text("UseDNS no\nHostKey /etc/ssh/ssh_host_ed25519_key\n")
    (tree / "etc/systemd/logind.conf.d").mkdir()
    (tree / "etc/systemd/logind.conf.d/strict.conf").write_text(LOGIND)
    (tree / "etc/systemd/journald.conf.d").mkdir()
    (tree / "etc/systemd/journald.conf.d/volatile.conf").write_text("[Journal]\nStorage=volatile\n")
    (tree / "etc/machine-id").write_text("")
    for unit in MASKED:
        (tree / "etc/systemd/system" / unit).unlink(missing_ok=True)
        (tree / "etc/systemd/system" / unit).symlink_to("/dev/null")
    for folder in ("var/cache/apt", "var/lib/apt/lists"):  # apt of a machine wants the folders, empty
        shutil.rmtree(tree / folder)
        (tree / folder).mkdir()


def _boot_files(making: Image) -> None:
    """Take the kernel out of its package, and pack what it needs to find the disk and the network."""
    unpacked = making.home / "kernel"
    depends = _run("apt-cache", "depends", "--important", KERNEL).split()
    package = next(name for name in depends if name.startswith("linux-image-") and name != KERNEL)
    unpacked.mkdir()
    unpacked.chmod(0o777)  # apt downloads as an account of its own
    _run("apt-get", "download", package, cwd=unpacked)
    [archive] = unpacked.glob("*.deb")
    _run("dpkg-deb", "-x", str(archive), str(unpacked))
    [kernel] = (unpacked / "boot").glob("vmlinuz-*")
    kernel.rename(making.kernel)
    _pack_initrd(making, next(unpacked.glob("lib/modules/*/kernel")))
    shutil.rmtree(unpacked)


def _pack_initrd(making: Image, modules: Path) -> None:
    tree = making.home / "initrd"
    (tree / "bin").mkdir(parents=True)
    busybox = shutil.which("busybox") or "busybox"
    shutil.copy(busybox, tree / "bin/busybox")
    loaded = _in_load_order(modules)
    for path in loaded:
        shutil.copy(path, tree)
    (tree / "init").write_text(INIT.format(modules=" ".join(path.stem for path in loaded)))
    (tree / "init").chmod(0o755)
    files = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
    with making.initrd.open("wb") as packed:
        command = [busybox, "cpio", "-o", "-H", "newc"]
        subprocess.run(command, cwd=tree, input=files.encode(), stdout=packed, check=True, capture_output=False)
    shutil.rmtree(tree)


def _in_load_order(modules: Path) -> list[Path]:
    """Give the files of `MODULES`, each behind those that it needs; those that are built in have none.

    Which needs which changes between two updates of one kernel, so each file is asked itself (its `depends=`).
    """
    files = {path.stem.replace("-", "_"): path for path in modules.rglob("*.ko")}
    order: dict[str, Path] = {}

    def add(name: str) -> None:
        if name in files and name not in order:
            needs = re.search(rb"\bdepends=([\w,-]*)\0", files[name].read_bytes())
            for need in needs[1].decode().split(",") if needs else ():
                add(need.replace("-", "_"))
            order[name] = files[name]

    for name in MODULES:
        add(name)
    return list(order.values())
