"""Which devices a group of the cgroup2 tree may use: a BPF program that the kernel asks at every open and mknod.

The program is a handful of instructions, made here and given to bpf(2). A group is denied some devices and keeps the
others; what the groups above it are denied stays denied.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import stat
import struct
from typing import NamedTuple

_CALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "ppc64": 361, "s390x": 351}
_PROG_LOAD, _PROG_ATTACH = 5, 8
_CGROUP_DEVICE_PROGRAM, _CGROUP_DEVICE_HOOK = 15, 6
_BESIDE_OTHERS = 2  # BPF_F_ALLOW_MULTI: programs of the cgroups above, such as systemd's, stay in force

_BLOCK, _CHARACTER = 1, 2
_LOAD_WORD, _AND, _JUMP_UNLESS, _SET, _EXIT = 0x61, 0x57, 0x55, 0xB7, 0x95


class Device(NamedTuple):
    """A device by its numbers; `kind` as the kernel's hook has it."""

    kind: int
    major: int
    minor: int


def device(path: str) -> Device | None:
    """Return the device behind a file; `None` if there is no such device, so that there is nothing to deny."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    kind = _CHARACTER if stat.S_ISCHR(info.st_mode) else _BLOCK if stat.S_ISBLK(info.st_mode) else 0
    return Device(kind, os.major(info.st_rdev), os.minor(info.st_rdev)) if kind else None


def program(denied: list[Device]) -> bytes:
    """Assemble the program. Registers 2 to 4 hold type, major and minor of the device; 0 denies, 1 allows."""
    code = [
        _instruction(_LOAD_WORD, to=2, source=1, offset=0),
        _instruction(_AND, to=2, value=0xFFFF),  # the upper 16 bits are the access (mknod, read, write)
        _instruction(_LOAD_WORD, to=3, source=1, offset=4),
        _instruction(_LOAD_WORD, to=4, source=1, offset=8),
    ]
    for device in denied:
        code += [
            # Offsets count the instructions to skip: each jump goes to the next device.
            _instruction(_JUMP_UNLESS, to=2, offset=4, value=device.kind),
            _instruction(_JUMP_UNLESS, to=3, offset=3, value=device.major),
            _instruction(_JUMP_UNLESS, to=4, offset=2, value=device.minor),
            _instruction(_SET, to=0, value=0),
            _instruction(_EXIT),
        ]
    return b"".join([*code, _instruction(_SET, to=0, value=1), _instruction(_EXIT)])


def _instruction(code: int, *, to: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    # Two fields of four bits in one byte: their order follows the byte order of the machine.
    registers = to | source << 4 if struct.pack("=H", 1) == b"\1\0" else to << 4 | source
    return struct.pack("=BBhi", code, registers, offset, value)


def works() -> bool:
    """Return whether this kernel lets us load such programs."""
    try:
        os.close(_load(program([])))
    except OSError:
        return False
    return True


def deny(group: str, devices: list[Device]) -> None:
    """Deny devices to the group in this directory; `OSError` if the kernel does not take that."""
    loaded = _load(program(devices))
    at = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # The group keeps the program when our descriptors are closed, until it is removed.
        _bpf(_PROG_ATTACH, struct.pack("=IIII", at, loaded, _CGROUP_DEVICE_HOOK, _BESIDE_OTHERS))
    finally:
        os.close(at)
        os.close(loaded)


def _load(code: bytes) -> int:
    """Load a program. Linux before 5.11 charges it to RLIMIT_MEMLOCK, which may have to be raised meanwhile."""
    try:
        return _loaded(code)
    except PermissionError:
        before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        try:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        except ValueError:
            raise OSError(errno.EPERM, "bpf(2) is not allowed") from None
    try:
        return _loaded(code)
    finally:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, before)  # jobs do not inherit it


def _loaded(code: bytes) -> int:
    instructions, licence = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"GPL")
    where = ctypes.addressof(instructions), ctypes.addressof(licence)
    return _bpf(_PROG_LOAD, struct.pack("=IIQQ", _CGROUP_DEVICE_PROGRAM, len(code) // 8, *where))


def _bpf(command: int, attributes: bytes) -> int:
    number = _CALL.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, f"bpf(2) has no known number on {os.uname().machine}")
    body = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(libc.syscall(ctypes.c_long(number), ctypes.c_long(command), body, ctypes.c_long(len(body))))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
