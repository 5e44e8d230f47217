"""The Debian packages on a bare Debian without systemd: what they and setup wrote is gone once they are taken away."""

import subprocess

import pytest

from oarlock import __version__
from tests.bed import needs_root
from tests.releases import RELEASES
from tests.vm import packages
from tests.vm.cluster import FILES

pytestmark = [
    needs_root,
    pytest.mark.soak,
    pytest.mark.timeout(1500),
    pytest.mark.component("debootstrap"),
    pytest.mark.component("busybox"),
    pytest.mark.component("mke2fs"),
]

# The image is only read; what is written is in memory, and gone with the namespace.
MACHINE = """
set -e
mkdir {place}/lower {place}/upper
mount -o loop,ro {disk} {place}/lower
mount -t tmpfs tmpfs {place}/upper
mkdir {place}/upper/written {place}/upper/work {place}/upper/root
mount -t overlay -o lowerdir={place}/lower,upperdir={place}/upper/written,workdir={place}/upper/work overlay \
    {place}/upper/root
mount -t proc proc {place}/upper/root/proc
mount --bind /dev {place}/upper/root/dev
cp {debs} {place}/upper/root/root
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec chroot {place}/upper/root bash -e -c 'cd /root; {script}'
"""
LEAVES = """
{files} > /tmp/before
{install}
{use}
{undo}
apt-get remove -y {name} > /tmp/log 2>&1 || {{ cat /tmp/log; exit 1; }}
{files} > /tmp/after
echo "left:"
diff /tmp/before /tmp/after
"""
INSTALL = "apt-get install -y ./{name} > /tmp/log 2>&1 || {{ cat /tmp/log; exit 1; }}; oarlock --version"


def left_behind(site_image, place, debs, *, use, undo):
    """Install packages on a bare machine, one over the other, use them and take them away.

    Return what was printed, and how the files that are there then differ from those before.
    """
    install = "; ".join(INSTALL.format(name=deb.name) for deb in debs)
    name = debs[-1].name.partition("_")[0]
    files = FILES.replace("-path /proc", "-path /proc -o -path /dev")
    script = LEAVES.format(files=files, install=install, use=use, undo=undo, name=name)
    commands = MACHINE.format(place=place, disk=site_image.disk, debs=" ".join(map(str, debs)), script=script)
    space = ["unshare", "--mount", "--propagation", "private", "sh", "-c", commands]
    ran = subprocess.run(space, capture_output=True, text=True, timeout=900)
    assert "left:\n" in ran.stdout, ran.stdout + ran.stderr
    return ran.stdout.split("left:\n")


SERVER = {"use": "oarlock setup server", "undo": "oarlock setup server --undo"}
RELAY = {
    "use": "echo x > key; oarlock setup login --relay --server https://head:6680 --key key; oarsub --help; rm key",
    "undo": "oarlock setup login --undo",
}


@pytest.mark.parametrize(("number", "role"), [(0, SERVER), (1, RELAY)], ids=["oarlock", "oarlock-client"])
def test_a_package_and_setup_leave_nothing_behind(site_image, tmp_path, number, role):
    _, left = left_behind(site_image, tmp_path, [packages.of_this_tree()[number]], **role)
    assert left == ""


def test_a_package_over_that_of_the_last_release_leaves_nothing_of_either(site_image, tmp_path):
    last, this = packages.of_release(RELEASES[0])[0], packages.of_this_tree()[0]
    printed, left = left_behind(site_image, tmp_path, [last, this], **SERVER)
    versions = [line for line in printed.splitlines() if line.startswith("oarlock ")]
    assert (versions, left) == ([f"oarlock {RELEASES[0].version}", f"oarlock {__version__}"], "")
