"""The environment of a job: its variables, its node file, its property file. Text only."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from oarlock.node.wire.messages import Launch

PATH = "/usr/local/bin:/usr/bin:/bin"
LONGEST = 128 << 10
"""Bytes of the user's own variables together."""

_LONGEST_SOCKET = 107
"""Bytes in the path of a Unix socket (sun_path), without the NUL at its end."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = ("HOME", "USER", "LOGNAME", "SHELL")


def tools_folder(runtime: str) -> str:
    """Return the folder with the commands of jobs, the first one in their PATH."""
    return f"{runtime}/bin"


def client_socket(runtime: str) -> str:
    """Return the socket by which processes of jobs reach the server; an empty text if its path would be too long."""
    path = f"{runtime}/oarsh.sock"
    return path if len(os.fsencode(path)) < _LONGEST_SOCKET else ""


class JobFiles(NamedTuple):
    """Where the job finds what is written for it."""

    nodes: str
    resources: str
    key: str  # only where the job has one on this node

    @classmethod
    def of(cls, runtime: str, name: str) -> JobFiles:
        """Return the paths of an attempt's files."""
        return cls(f"{runtime}/{name}.nodes", f"{runtime}/{name}.resources", f"{runtime}/{name}.key")

    @property
    def runtime(self) -> str:
        """The directory of the node's files."""
        return os.path.dirname(self.nodes)


class EnvironmentTooLarge(Exception):
    """More variables than a job may bring."""


def variables(launch: Launch, *, home: str, shell: str, files: JobFiles, cpuset: str) -> dict[str, str]:
    """Build the environment: the user's identity, the user's own variables, then ours, which nothing overrides."""
    mine = {"PATH": PATH, **_mpi(files), **_brought(launch.environment)}
    return {
        **mine,
        **_tools(files.runtime, mine["PATH"]),
        "HOME": home,
        "USER": launch.user,
        "LOGNAME": launch.user,
        "SHELL": shell,
        **_oar(launch, files, cpuset),
        **_gpus(launch),
    }


def _tools(runtime: str, path: str) -> dict[str, str]:
    """Return by which variables the commands of jobs are found, and by which they find the server."""
    return {"PATH": f"{tools_folder(runtime)}:{path}", "OARSH_SOCKET": client_socket(runtime)}


def _mpi(files: JobFiles) -> dict[str, str]:
    """Return how `mpirun` and `mpiexec` start on all nodes of the job by oarsh; what the user brings is stronger.

    OpenMPI 4 reads OMPI_MCA_*, OpenMPI 5 PRTE_MCA_*, MPICH and its relatives HYDRA_*. Variables of Slurm, which a
    translated script sets, would otherwise make each of them call srun.
    """
    return {
        "OMPI_MCA_plm": "rsh",
        "OMPI_MCA_plm_rsh_agent": "oarsh",
        "OMPI_MCA_ras": "^slurm",
        "OMPI_MCA_orte_default_hostfile": files.nodes,
        "OMPI_MCA_orte_keep_fqdn_hostnames": "1",
        "PRTE_MCA_plm": "ssh",
        "PRTE_MCA_plm_ssh_agent": "oarsh",
        "PRTE_MCA_ras": "^slurm",
        "PRTE_MCA_prte_default_hostfile": files.nodes,
        "PRTE_MCA_prte_keep_fqdn_hostnames": "1",
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": "oarsh",
        "HYDRA_HOST_FILE": files.nodes,
    }


def _brought(environment: dict[str, str]) -> dict[str, str]:
    kept = {
        name: value
        for name, value in environment.items()
        if _NAME.fullmatch(name) and name not in _OURS and not name.startswith("OAR_")
    }
    size = sum(len(name) + len(value) + 2 for name, value in kept.items())
    if size > LONGEST:
        raise EnvironmentTooLarge(f"the job brings {size} bytes of variables; at most {LONGEST} are passed on")
    return kept


def _oar(launch: Launch, files: JobFiles, cpuset: str) -> dict[str, str]:
    seconds = launch.walltime
    same = {
        files.nodes: ("OAR_NODEFILE", "OAR_NODE_FILE", "OAR_FILE_NODES", "OAR_RESOURCE_FILE"),
        str(launch.job): ("OAR_JOBID", "OAR_JOB_ID"),
        launch.directory: ("OAR_WORKDIR", "OAR_O_WORKDIR", "OAR_WORKING_DIRECTORY"),
    }
    array = {"ID": str(launch.array_id or launch.job), "INDEX": str(launch.array_index)}
    return {
        **{name: value for value, names in same.items() for name in names},
        **{f"OAR_ARRAY{gap}{name}": value for name, value in array.items() for gap in ("", "_")},
        "OAR_USER": launch.user,
        "OAR_JOB_NAME": launch.name,
        "OAR_PROJECT_NAME": launch.project,
        "OAR_JOB_WALLTIME": f"{seconds // 3600}:{seconds // 60 % 60}:{seconds % 60}",
        "OAR_JOB_WALLTIME_SECONDS": str(seconds),
        "OAR_RESOURCE_PROPERTIES_FILE": files.resources,
        "OAR_STDOUT": launch.stdout,
        "OAR_STDERR": launch.stderr,
        "OAR_KEY": "1" if launch.key else "0",
        "OAR_CPUSET": cpuset,
        **({"OAR_JOB_KEY_FILE": files.key} if launch.has_key else {}),
    }


def _gpus(launch: Launch) -> dict[str, str]:
    """Return the job's GPUs: numbered as CUDA does (it does not count those it cannot open), and as the site does."""
    if not launch.gpus and not launch.other_gpus:
        return {}
    hidden = launch.other_gpus if launch.limits.deny_devices else ()
    counted = [gpu - sum(other < gpu for other in hidden) for gpu in launch.gpus]
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, counted)),
        "OAR_JOB_GPUS": ",".join(map(str, launch.gpus)),
    }


def node_file(launch: Launch) -> str:
    """One line for each thing the site counts as a place, in the server's order."""
    return "".join(f"{line}\n" for line in launch.nodes)


def property_file(launch: Launch) -> str:
    """One line a resource, every property in it, in OAR's form and in the order of their names."""
    return "".join([_properties(resource) for resource in launch.resources])


def _properties(resource: dict[str, Any]) -> str:
    pairs = " , ".join([f"{name} = '{_shown(resource[name])}'" for name in sorted(resource)])
    return f" {pairs} \n"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    # A line a resource: a value must not end it. Most values are numbers.
    return str(value) if type(value) is int else " ".join(str(value).splitlines())
