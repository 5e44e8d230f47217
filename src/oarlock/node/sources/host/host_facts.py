"""What `oarlock doctor` asks a host: Python, clock, cgroups, accounts, names, disks, settings of the kernel.

The text of this file is sent to hosts that have nothing of ours yet, so it imports nothing of ours and uses what every
Python 3 has. Where the node program was installed, that program answers instead: it carries this file, too.
"""

from __future__ import annotations

import os
import pwd
import socket
import sys
import time
from typing import Any, Dict, List, Optional, Tuple  # noqa: UP035 - read by the Python of any host

_CGROUPS = "sys/fs/cgroup"
_MOST_NAMES = 1000


def describe(request: Dict[str, Any], root: str = "/") -> Dict[str, Any]:  # noqa: UP006
    """Describe this host; `request` names the `users`, the `paths` of disks and the `hosts` that matter."""
    return {
        "python": list(sys.version_info[:3]),
        "uid": os.geteuid(),
        "host": socket.gethostname(),
        "boot": _read(root, "proc/sys/kernel/random/boot_id"),
        "cgroups": _cgroups(root),
        "systemd": os.path.isdir(os.path.join(root, "run/systemd/system")),
        "systemd_run": any(
            os.access(os.path.join(root, folder, "systemd-run"), os.X_OK) for folder in ("usr/bin", "bin")
        ),
        "users": {name: _account(name) for name in _names(request, "users")},
        "disks": {path: _free(path) for path in _names(request, "paths")},
        "hosts": {name: _addresses(name) for name in _names(request, "hosts")},
        "paranoid": _number(root, "proc/sys/kernel/perf_event_paranoid"),
        "pid_max": _number(root, "proc/sys/kernel/pid_max"),
        "threads_max": _number(root, "proc/sys/kernel/threads-max"),
        "now": time.time(),
    }


def _names(request: Dict[str, Any], key: str) -> List[str]:  # noqa: UP006
    return [name for name in request.get(key, ()) if isinstance(name, str)][:_MOST_NAMES]


def _read(*parts: str) -> str:
    """Read a file; nothing if there is none, or if it cannot be read."""
    try:
        with open(os.path.join(*parts), encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _number(*parts: str) -> Optional[int]:  # noqa: UP045
    text = _read(*parts)
    return int(text) if text.lstrip("-").isdigit() else None


def _cgroups(root: str) -> Dict[str, Any]:  # noqa: UP006
    """Return the version whose controllers jobs get (0: none) and those controllers."""
    unified = _read(root, _CGROUPS, "cgroup.controllers").split()
    if unified:
        return {"version": 2, "controllers": sorted(unified)}
    enabled = [line.split() for line in _read(root, "proc/cgroups").splitlines() if not line.startswith("#")]
    mounted = {
        word for line in _read(root, "proc/mounts").splitlines() if " cgroup " in line for word in _options(line)
    }
    v1 = sorted(words[0] for words in enabled if words and words[0] in mounted)
    return {"version": 1 if v1 else 0, "controllers": v1}


def _options(mount: str) -> List[str]:  # noqa: UP006
    words = mount.split()
    return words[3].split(",") if len(words) > 3 else []


def _account(name: str) -> Optional[List[Any]]:  # noqa: UP006, UP045
    """Return uid, home, and whether the home is there; None if the host does not know the user."""
    try:
        account = pwd.getpwnam(name)
    except KeyError:
        return None
    return [account.pw_uid, account.pw_dir, os.path.isdir(account.pw_dir)]


def _free(path: str) -> Optional[Tuple[int, int]]:  # noqa: UP006, UP045
    """Return the free and all bytes of the disk on which a path lies, or will lie once it is made."""
    while not os.path.exists(path) and path not in ("", "/"):
        path = os.path.dirname(path)
    try:
        about = os.statvfs(path or "/")
    except OSError:
        return None
    return about.f_bavail * about.f_frsize, about.f_blocks * about.f_frsize


def _addresses(name: str) -> List[str]:  # noqa: UP006
    try:
        return sorted({str(entry[4][0]) for entry in socket.getaddrinfo(name, None)})
    except (OSError, UnicodeError):
        return []
