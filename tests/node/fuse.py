"""A file system of a user's own (FUSE) for tests: one directory in which files can be made and written."""

import ctypes
import os
import stat
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
LOOKUP, GETATTR, SETATTR, OPEN, WRITE, INIT, ACCESS, CREATE, FORGET = 1, 3, 4, 14, 16, 26, 34, 35, 2
HEAD, OUT = struct.Struct("=IIQQIIIHH"), struct.Struct("=IiQ")
ROOT, FILE = 1, 2


class Served:
    """What the file system holds: one file, and everything that was written to it."""

    def __init__(self, uid: int) -> None:
        self.uid, self.made, self.written = uid, False, b""

    def attributes(self, node: int) -> bytes:
        mode = stat.S_IFDIR | 0o755 if node == ROOT else stat.S_IFREG | 0o644
        size = 0 if node == ROOT else len(self.written)
        return struct.pack(
            "=QQQQQQIIIIIIIIII", node, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, self.uid, self.uid, 0, 4096, 0
        )

    def entry(self) -> bytes:
        return struct.pack("=QQQQII", FILE, 0, 0, 0, 0, 0) + self.attributes(FILE)

    def answer(self, code: int, node: int, body: bytes) -> bytes | int:
        """Answer a request: bytes, or the number of an error."""
        if code == INIT:
            return struct.pack("=IIIIHHIIHHI7I", 7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, 0, *[0] * 7)
        if code == LOOKUP:
            return self.entry() if self.made else 2
        if code in {GETATTR, SETATTR}:
            return struct.pack("=QII", 0, 0, 0) + self.attributes(node)
        if code == CREATE:
            self.made = True
            return self.entry() + struct.pack("=QII", 1, 0, 0)
        if code == OPEN:
            return struct.pack("=QII", 1, 0, 0)
        if code == WRITE:
            size = struct.unpack_from("=QQI", body)[2]
            self.written += body[40 : 40 + size]
            return struct.pack("=II", size, 0)
        return 38  # ENOSYS


def _serve(fd: int, served: Served) -> None:
    while True:
        try:
            request = os.read(fd, 1 << 17)
        except OSError:
            return
        length, code, unique, node = HEAD.unpack_from(request)[:4]
        if code == FORGET:
            continue
        said = served.answer(code, node, request[HEAD.size : length])
        body, error = (b"", -said) if isinstance(said, int) else (said, 0)
        os.write(fd, OUT.pack(OUT.size + len(body), error, unique) + body)


@contextmanager
def mounted(at: Path, uid: int, gid: int) -> Iterator[Served]:
    """Mount a file system of this user at a directory, as `fusermount` would."""
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={fd},rootmode=40000,user_id={uid},group_id={gid}"
    if LIBC.mount(b"test", os.fsencode(at), b"fuse", 6, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "FUSE cannot be mounted")
    served = Served(uid)
    thread = threading.Thread(target=_serve, args=(fd, served), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        LIBC.umount2(os.fsencode(at), 2)
        thread.join(5)
        os.close(fd)
