"""Programs of the system that tests need: which, from which Debian package, and what to do where one is missing.

A test says `@pytest.mark.component("sshd")`. Adding a component is one line in the table. Standard library only:
`scripts/components` reads this before the tests run.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

SYSTEM_PATHS = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where daemons live; a plain user's PATH leaves them out."""


@dataclass(frozen=True, slots=True)
class Component:
    """A program, the Debian package it comes from, and what is tested with it."""

    name: str
    program: str
    package: str
    tests: str
    soak: bool = False  # only the long tests need it

    def left_out(self) -> str:
        """Say in one line what is not tested, and the way out."""
        return f"{self.name} is not installed, so {self.tests} is not tested (apt-get install {self.package})"


COMPONENTS: Mapping[str, Component] = {
    component.name: component
    for component in (
        Component("bash", "bash", "bash", "reading settings the way bash does"),
        Component("fish", "fish", "fish", "what fish offers behind a command"),
        Component("zsh", "zsh", "zsh", "what zsh offers behind a command"),
        Component("chromium", "chromium", "chromium", "whether the report of a replay can be read in a browser"),
        Component("busybox", "busybox", "busybox-static", "virtual nodes with systemd", soak=True),
        Component("debootstrap", "debootstrap", "debootstrap", "virtual nodes with systemd", soak=True),
        Component("ip", "ip", "iproute2", "nodes in network namespaces"),
        Component("mke2fs", "mke2fs", "e2fsprogs", "virtual nodes with systemd", soak=True),
        Component("Xvfb", "Xvfb", "xvfb", "the display of an interactive job", soak=True),
        Component("xdpyinfo", "xdpyinfo", "x11-utils", "the display of an interactive job", soak=True),
        Component("mpirun", "mpirun", "openmpi-bin", "OpenMPI over the nodes of a job"),
        Component("mpiexec.hydra", "mpiexec.hydra", "mpich", "MPICH over the nodes of a job"),
        Component("qemu", "qemu-system-x86_64", "qemu-system-x86", "virtual nodes with systemd", soak=True),
        Component("qemu-img", "qemu-img", "qemu-utils", "virtual nodes with systemd", soak=True),
        Component("sudo", "sudo", "sudo", "nodes where the program was installed"),
        Component("sshd", "sshd", "openssh-server", "reaching nodes by ssh"),
        Component("taktuk", "taktuk", "taktuk", "checking nodes with taktuk"),
        Component("vi", "vi", "vim-tiny", "full-screen programs in interactive jobs"),
        Component("mariadb", "mariadbd", "mariadb-server", "reading the accounting of Slurm"),
        Component("munged", "munged", "munge", "measuring jobs of a real Slurm"),
        Component("prometheus", "prometheus", "prometheus", "what Prometheus makes of the measurements"),
        Component("promtool", "promtool", "prometheus", "whether Prometheus can read names and rules"),
        Component("pushgateway", "prometheus-pushgateway", "prometheus-pushgateway", "pushing measurements"),
        Component("slurmctld", "slurmctld", "slurmctld", "measuring jobs of a real Slurm"),
        Component("slurmd", "slurmd", "slurmd", "measuring jobs of a real Slurm"),
        Component("slurmdbd", "slurmdbd", "slurmdbd", "reading the accounting of a real Slurm", soak=True),
    )
}


def present(component: Component) -> bool:
    """Whether the program is on this machine."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *SYSTEM_PATHS))
    return shutil.which(component.program, path=path) is not None


def must_be_complete(environment: Mapping[str, str]) -> bool:
    """Whether a missing component fails the run (CI=true) or only leaves tests out."""
    return environment.get("CI", "").lower() in {"true", "1"}


def missing(table: Iterable[Component], is_present: Callable[[Component], bool] = present) -> list[Component]:
    """Give the components that are not there."""
    return [component for component in table if not is_present(component)]


def install_commands(wanted: Iterable[Component], *, root: bool, debian: bool) -> list[list[str]]:
    """Give the commands that would install what is missing; none where we may not or cannot."""
    packages = sorted({component.package for component in wanted})
    if not (packages and root and debian):
        return []
    install = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *packages]
    return [["apt-get", "update", "--quiet"], install]


def left_out_notes(reasons: Iterable[str], table: Mapping[str, Component] = COMPONENTS) -> list[str]:
    """Count left-out tests by component: a line each, from the reasons with which tests were skipped."""
    reasons = list(reasons)
    counted = [(component, sum(component.left_out() in reason for reason in reasons)) for component in table.values()]
    return [f"{count} left out: {component.left_out()}" for component, count in counted if count]
