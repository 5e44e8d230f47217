"""A file system of a user's own (FUSE) for tests: one directory of files, which may take its time to write."""

import contextlib
import ctypes
import os
import stat
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
LOOKUP, FORGET, GETATTR, SETATTR, UNLINK, OPEN, READ, WRITE, STATFS = 1, 2, 3, 4, 10, 14, 15, 16, 17
RELEASE, INIT, OPENDIR, READDIR, RELEASEDIR, CREATE = 18, 26, 27, 28, 29, 35
HEAD, OUT = struct.Struct("=IIQQIIIHH"), struct.Struct("=IiQ")
ROOT = 1
_NO_ENTRY, _UNKNOWN = 2, 38  # ENOENT, ENOSYS
_SIZE = 8  # the bit of a change of attributes that sets the size
_OPENED = struct.pack("=QII", 1, 0, 0)


class Served:
    """What the file system holds: files by name. A write is in its file, and answered, after `write_seconds`."""

    def __init__(self, uid: int, write_seconds: float = 0.0) -> None:
        self.uid, self.write_seconds = uid, write_seconds
        self.names: dict[bytes, int] = {}
        self.files: dict[int, bytearray] = {}
        self._answers = {
            INIT: lambda *_: struct.pack("=IIIIHHIIHHI7I", 7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, 0, *[0] * 7),
            LOOKUP: lambda _, body: self._entry(_name(body)) if _name(body) in self.names else _NO_ENTRY,
            GETATTR: lambda node, _: self._all_attributes(node),
            SETATTR: self._set_attributes,
            CREATE: self._create,
            OPEN: lambda *_: _OPENED,
            OPENDIR: lambda *_: _OPENED,
            READ: self._read,
            READDIR: self._list,
            WRITE: self._write,
            UNLINK: self._unlink,
            RELEASE: lambda *_: b"",
            RELEASEDIR: lambda *_: b"",
            STATFS: lambda *_: struct.pack("=5Q4I6I", 1 << 20, 1 << 19, 1 << 19, 9, 9, 4096, 255, 4096, 0, *[0] * 6),
        }

    @property
    def written(self) -> bytes:
        """What is in all files, one after the other."""
        return b"".join(self.files.values())

    def answer(self, code: int, node: int, body: bytes) -> bytes | int:
        """Answer a request: bytes, or the number of an error."""
        answer = self._answers.get(code)
        return _UNKNOWN if answer is None else answer(node, body)

    def _attributes(self, node: int) -> bytes:
        mode = stat.S_IFDIR | 0o755 if node == ROOT else stat.S_IFREG | 0o644
        size = 0 if node == ROOT else len(self.files[node])
        return struct.pack(
            "=QQQQQQIIIIIIIIII", node, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, self.uid, self.uid, 0, 4096, 0
        )

    def _all_attributes(self, node: int) -> bytes:
        return struct.pack("=QII", 0, 0, 0) + self._attributes(node)

    def _entry(self, name: bytes) -> bytes:
        node = self.names[name]
        return struct.pack("=QQQQII", node, 0, 0, 0, 0, 0) + self._attributes(node)

    def _set_attributes(self, node: int, body: bytes) -> bytes:
        if struct.unpack_from("=I", body)[0] & _SIZE:
            del self.files[node][struct.unpack_from("=Q", body, 16)[0] :]
        return self._all_attributes(node)

    def _create(self, _node: int, body: bytes) -> bytes:
        name = _name(body[16:])
        self.names[name] = ROOT + 1 + len(self.files)
        self.files[self.names[name]] = bytearray()
        return self._entry(name) + _OPENED

    def _read(self, node: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("=QQI", body)
        return bytes(self.files[node][offset : offset + size])

    def _write(self, node: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("=QQI", body)
        self.files[node][offset:] = body[40 : 40 + size]
        return struct.pack("=II", size, 0)

    def _unlink(self, _node: int, body: bytes) -> bytes:
        del self.names[_name(body)]
        return b""

    def _list(self, _node: int, body: bytes) -> bytes:
        """List the directory as the kernel wants it: each entry is filled up to eight bytes."""
        offset = struct.unpack_from("=QQ", body)[1]
        rows = [(b".", ROOT, 4), (b"..", ROOT, 4), *((name, node, 8) for name, node in self.names.items())]
        return b"".join(
            struct.pack("=QQII", node, place, len(name), kind) + name + bytes(-len(name) % 8)
            for place, (name, node, kind) in enumerate(rows, 1)
            if place > offset
        )


def _name(body: bytes) -> bytes:
    return body.rstrip(b"\0")


def _serve(fd: int, served: Served) -> None:
    while True:
        try:
            request = os.read(fd, 1 << 18)
        except OSError:
            return
        length, code, unique, node = HEAD.unpack_from(request)[:4]
        if code == FORGET:
            continue
        work = fd, served, unique, code, node, request[HEAD.size : length]
        if code == WRITE and served.write_seconds:
            timer = threading.Timer(served.write_seconds, _answer, work)
            timer.daemon = True
            timer.start()
        else:
            _answer(*work)


def _answer(fd: int, served: Served, unique: int, code: int, node: int, body: bytes) -> None:
    said = served.answer(code, node, body)
    content, error = (b"", -said) if isinstance(said, int) else (said, 0)
    with contextlib.suppress(OSError):  # it was unmounted meanwhile
        os.write(fd, OUT.pack(OUT.size + len(content), error, unique) + content)


@contextmanager
def mounted(at: Path, uid: int, gid: int, *, write_seconds: float = 0.0) -> Iterator[Served]:
    """Mount a file system of this user at a directory, as `fusermount` would."""
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={fd},rootmode=40000,user_id={uid},group_id={gid}"
    if LIBC.mount(b"test", os.fsencode(at), b"fuse", 6, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "FUSE cannot be mounted")
    served = Served(uid, write_seconds)
    thread = threading.Thread(target=_serve, args=(fd, served), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        LIBC.umount2(os.fsencode(at), 2)
        thread.join(5)
        os.close(fd)
