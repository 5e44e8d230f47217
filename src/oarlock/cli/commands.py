"""Which module each command is: `jobs/oarsub`, `cluster/oarnodes`, `slurm/sbatch`."""

from importlib import import_module
from types import ModuleType

from oarlock.cli import cluster, jobs, slurm

_FOLDERS = (cluster, jobs, slurm)


def module_name(command: str) -> str:
    """Return the name of a command's module; raise KeyError for what is no command."""
    if command == "oarlock":
        return f"{__package__}.{command}"
    for folder in _FOLDERS:
        if command in folder.COMMANDS:
            return f"{folder.__name__}.{command}"
    raise KeyError(command)


def load(command: str) -> ModuleType:
    """Import the module of a command, which has its `OPTIONS` and its `main`."""
    return import_module(module_name(command))
