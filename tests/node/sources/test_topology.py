"""What machines are made of, read from files as their kernels write them."""

from pathlib import Path

import pytest

from oarlock.node.sources.host.topology import describe

GB = 1 << 30
NVIDIA = (
    "Model: \t\t {model}\nIRQ:   \t\t 160\nGPU UUID: \t GPU-8f5\nBus Location: \t {address}\nDevice Minor: \t {minor}\n"
)
AMD = "cpu_cores_count 0\nsimd_count {simd}\ngfx_target_version 90010\ndrm_render_minor {minor}\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def machine(root: Path, cpus: dict[int, tuple[object, str]], *, online: str = "", memory: int = 16) -> Path:
    """Write the tree of a machine: the socket and the siblings of each CPU, as `lscpu` reads them."""
    folder = root / "sys/devices/system/cpu"
    for cpu, (socket, siblings) in cpus.items():
        write(folder / f"cpu{cpu}/topology/physical_package_id", f"{socket}\n")
        write(folder / f"cpu{cpu}/topology/core_id", "0\n")  # repeats on every die of some machines
        if siblings:
            write(folder / f"cpu{cpu}/topology/thread_siblings_list", f"{siblings}\n")
    write(folder / "online", online or f"0-{max(cpus)}\n")
    write(root / "proc/meminfo", f"MemTotal:       {memory * GB // 1024} kB\nMemFree: 7 kB\n")
    return root


def test_two_sockets_with_interleaved_threads(tmp_path):
    cpus = {cpu: (cpu % 2, f"{cpu % 4},{cpu % 4 + 4}") for cpu in range(8)}
    assert describe(str(machine(tmp_path, cpus))) == {
        "sockets": [[[0, 4], [2, 6]], [[1, 5], [3, 7]]], "memory": 16 * GB, "gpus": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("cpus", "online", "sockets"),
    [
        ({0: (-1, "0"), 1: (-1, "1")}, "", [[[0], [1]]]),  # a board that does not tell its sockets
        ({0: (0, ""), 1: (0, "")}, "", [[[0], [1]]]),  # a kernel that does not tell siblings
        ({0: (0, "0-1"), 1: (0, "0-1"), 2: (0, "2-3"), 3: (0, "2-3")}, "0-2", [[[0, 1], [2]]]),  # one is offline
        ({0: (36, "0"), 1: (4, "1")}, "", [[[1]], [[0]]]),  # sockets are not counted from 0
        (dict.fromkeys(range(8), (0, "0-7")), "", [[list(range(8))]]),  # eight threads a core
    ],
)
def test_machines_of_other_shapes(tmp_path, cpus, online, sockets):
    assert describe(str(machine(tmp_path, cpus, online=online)))["sockets"] == sockets


def test_gpus_have_the_numbers_of_their_devices_and_the_cpus_near_to_them(tmp_path):
    root = machine(tmp_path, {cpu: (cpu // 2, str(cpu)) for cpu in range(4)})
    for address, minor, near in (("0000:3B:00.0", 1, "2-3"), ("0000:86:00.0", 0, "0-1")):
        about = NVIDIA.format(model="A100", address=address, minor=minor)
        write(root / "proc/driver/nvidia/gpus" / address / "information", about)
        write(root / "sys/bus/pci/devices" / address.lower() / "local_cpulist", f"{near}\n")
    assert describe(str(root))["gpus"] == [
        {"device": 0, "model": "A100", "near": [0, 1]}, {"device": 1, "model": "A100", "near": [2, 3]},
    ]  # fmt: skip


def test_gpus_of_amd_are_those_nodes_that_compute(tmp_path):
    root = machine(tmp_path, {0: (0, "0")})
    for node, simd, minor in ((0, 0, 0), (1, 440, 128), (2, 440, 129)):
        write(root / f"sys/class/kfd/kfd/topology/nodes/{node}/properties", AMD.format(simd=simd, minor=minor))
        write(root / f"sys/class/kfd/kfd/topology/nodes/{node}/name", "gfx90a\n")
    write(root / "sys/class/drm/renderD128/device/local_cpulist", "0\n")
    assert describe(str(root))["gpus"] == [
        {"device": 128, "model": "gfx90a", "near": [0]}, {"device": 129, "model": "gfx90a", "near": []},
    ]  # fmt: skip


def test_a_machine_that_tells_nothing_has_one_cpu(tmp_path):
    assert describe(str(tmp_path)) == {"sockets": [[[0]]], "memory": 0, "gpus": []}
    folder = tmp_path / "sys/devices/system/cpu"
    write(folder / "online", "garbage\n")
    (folder / "cpu1").mkdir()
    write(tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: broken\n")
    assert describe(str(tmp_path)) == {"sockets": [[[1]]], "memory": 0, "gpus": []}
