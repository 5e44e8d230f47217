"""What a machine is made of: sockets, cores, threads, memory, GPUs.

The text of this file is sent to hosts that have nothing of ours yet (`oarlock discover`), so it imports nothing of ours
and uses what every Python 3 has.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Set, Tuple  # noqa: UP035 - read by the Python of any host

_CPUS = "sys/devices/system/cpu"
_NVIDIA = "proc/driver/nvidia/gpus"
_AMD = "sys/class/kfd/kfd/topology/nodes"


def describe(root: str = "/") -> Dict[str, Any]:  # noqa: UP006
    """Describe the machine whose files are below `root`: sockets with cores with CPU numbers, bytes of memory, GPUs."""
    return {"sockets": _sockets(root), "memory": _memory(root), "gpus": _nvidia(root) or _amd(root)}


def _read(*parts: str) -> str:
    """Read a file; nothing if there is none, or if it cannot be read."""
    try:
        with open(os.path.join(*parts), encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _names(*parts: str) -> List[str]:  # noqa: UP006
    try:
        return sorted(os.listdir(os.path.join(*parts)))
    except OSError:
        return []


def _cpu_list(text: str) -> List[int]:  # noqa: UP006
    """Read what the kernel writes: `0-3,8`."""
    cpus: Set[int] = set()  # noqa: UP006
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if first.isdigit() and (not dash or last.isdigit()):
            cpus.update(range(int(first), int(last if dash else first) + 1))
    return sorted(cpus)


def _online(root: str) -> List[int]:  # noqa: UP006
    present = [int(name[3:]) for name in _names(root, _CPUS) if name.startswith("cpu") and name[3:].isdigit()]
    return _cpu_list(_read(root, _CPUS, "online")) or sorted(present) or [0]


def _sockets(root: str) -> List[List[List[int]]]:  # noqa: UP006
    """Return the cores of each socket, each with its CPUs. Numbers of cores repeat, so their CPUs tell them apart."""
    online = set(_online(root))
    sockets: Dict[int, Dict[Tuple[int, ...], None]] = {}  # noqa: UP006
    for cpu in sorted(online):
        about = os.path.join(root, _CPUS, "cpu%d" % cpu, "topology")  # noqa: UP031
        socket = _read(about, "physical_package_id")
        siblings = _read(about, "core_cpus_list") or _read(about, "thread_siblings_list")
        core = tuple(number for number in _cpu_list(siblings) if number in online) or (cpu,)
        number = int(socket) if socket.isdigit() else 0  # -1 where the machine does not tell
        sockets.setdefault(number, {})[core if cpu in core else (cpu,)] = None
    return [[list(core) for core in sorted(cores)] for _, cores in sorted(sockets.items())]


def _memory(root: str) -> int:
    for line in _read(root, "proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def _nvidia(root: str) -> List[Dict[str, Any]]:  # noqa: UP006
    """Return the GPUs of NVIDIA's driver; `device` is the number in /dev/nvidia0."""
    gpus = []
    for address in _names(root, _NVIDIA):
        lines = _read(root, _NVIDIA, address, "information").splitlines()
        about = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        minor = about.get("Device Minor", "")
        if minor.isdigit():
            near = _cpu_list(_read(root, "sys/bus/pci/devices", address.lower(), "local_cpulist"))
            gpus.append({"device": int(minor), "model": about.get("Model", ""), "near": near})
    return sorted(gpus, key=lambda gpu: int(gpu["device"]))


def _amd(root: str) -> List[Dict[str, Any]]:  # noqa: UP006
    """Return the GPUs of AMD's driver; `device` is the number in /dev/dri/renderD128."""
    gpus = []
    for node in _names(root, _AMD):
        words = [line.split() for line in _read(root, _AMD, node, "properties").splitlines()]
        about = {word[0]: word[1] for word in words if len(word) == 2}
        if about.get("simd_count", "0") != "0" and about.get("drm_render_minor", "").isdigit():
            near = _read(root, "sys/class/drm", "renderD" + about["drm_render_minor"], "device/local_cpulist")
            model = _read(root, _AMD, node, "name")
            gpus.append({"device": int(about["drm_render_minor"]), "model": model, "near": _cpu_list(near)})
    return sorted(gpus, key=lambda gpu: int(gpu["device"]))
