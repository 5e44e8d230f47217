"""Try `node/` on every Python that a node may have and that is installed here; print which ones could be tried.

Ruff checks the grammar for the oldest one. This loads each module, and looks up every name that a module takes from the
standard library: one that came with a later Python fails here, not on a node. Standard library only; the half that runs
in the other Pythons keeps to the oldest.
"""

from __future__ import annotations

import ast
import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
OLDEST, NEWEST = 9, 14
JOB_COMMANDS = tuple(
    f"cli/{name}"
    for name in (
        "exit_codes",
        "jobs/oarcp",
        "jobs/oarprint",
        "jobs/oarsh",
        "layout/readable",
        "options",
        "output",
        "sessions/session",
        "sessions/terminal",
        "submitting/job_keys",
    )
)
"""What the commands of jobs are made of, which run on nodes as well (`node/program/tools.py`)."""


def installed(minor: int) -> str | None:
    """Return a Python 3 of this minor version: the one on the path, or one that pyenv has; None if there is none."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    kept = sorted(versions.glob(f"3.{minor}.*/bin/python3.{minor}"))
    for candidate in (shutil.which(f"python3.{minor}"), *map(str, kept)):
        # pyenv's shims are on the path for every version, and fail for those that are not switched on.
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


def main() -> int:
    """Try all; return 1 if one of them cannot run what a node gets."""
    tried, absent, status = [], [], 0
    for minor in range(OLDEST, NEWEST + 1):
        python = installed(minor)
        if python is None:
            absent.append(f"3.{minor}")
            continue
        ran = subprocess.run([python, "-W", "error", __file__, "here"], capture_output=True, text=True, check=False)
        tried.append(ran.stdout.splitlines()[-1] if ran.returncode == 0 else f"3.{minor} (fails)")
        if ran.returncode:
            print(f"node/ does not run on Python 3.{minor}:\n{ran.stdout}{ran.stderr}".rstrip())
            status = 1
    print(f"node/ tried on Python {', '.join(tried) or 'none'}; not installed: {', '.join(absent) or 'none'}")
    return status


def try_here() -> int:
    """Load every module that runs on nodes in this Python and look up what it uses; print the version last."""
    sys.dont_write_bytecode = True  # other Pythons' files would lie about in the tree
    sys.path.insert(0, str(SOURCE))
    missing = []
    commands = [
        SOURCE / f"oarlock/{name}.py" for name in ("client", "client_connection", "minimal_http", *JOB_COMMANDS)
    ]
    for path in [*sorted(SOURCE.glob("oarlock/node/**/*.py")), *commands]:
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        importlib.import_module(name[: -len(".__init__")] if name.endswith(".__init__") else name)
        missing += [f"{path.relative_to(SOURCE)}: {name} is not there" for name in absent_names(path.read_text())]
    print("\n".join([*missing, ".".join(map(str, sys.version_info[:3]))]))
    return 1 if missing else 0


def absent_names(text: str) -> Iterator[str]:
    """Yield the names that a module takes from the standard library and that this Python does not have."""
    tree = ast.parse(text)
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules.update({alias.asname or alias.name: alias.name for alias in node.names})
        elif isinstance(node, ast.ImportFrom) and node.module and not node.module.startswith(("oarlock", "__future__")):
            module = importlib.import_module(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names if not hasattr(module, alias.name))
    for node in ast.walk(tree):
        module_name = modules.get(dotted(node.value)) if isinstance(node, ast.Attribute) else None
        if module_name and not hasattr(importlib.import_module(module_name), node.attr):
            yield f"{module_name}.{node.attr}"


def dotted(node: ast.expr) -> str:
    """Return `a.b` for a name with attributes; an empty text for anything else."""
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return before and f"{before}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


if __name__ == "__main__":
    sys.exit(try_here() if sys.argv[1:] == ["here"] else main())
