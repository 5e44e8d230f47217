"""From `oarsub -s` to an archive on the server: a directory is packed here, and what the server has is not sent again.

A directory always gives the same archive, byte for byte, as long as nothing in it changes: it is sent once.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from typing import IO, TYPE_CHECKING, Any

from oarlock.client import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oarlock.client import Client

_PIECE = 1 << 18
_SPECIAL_BITS = 0o7000
_KIND = "StageInRefused"


def file_id(client: Client, path: str | None, md5sum: str | None) -> int:
    """Return the number under which the server has an archive, after sending it if need be.

    Without a path it is one that was sent before, by its sum.
    """
    if md5sum is not None and not re.fullmatch("[0-9a-fA-F]{32}", md5sum):
        raise _refused(f"`{md5sum}` is not an MD5 sum.", "It has 32 hexadecimal digits; `md5sum FILE` prints it.")
    md5sum = md5sum and md5sum.lower()
    if path is None:
        number = client.find_file(md5sum=md5sum)
        if number is None:
            raise _refused(f"The server has no archive of yours with the sum {md5sum}.", "Give the archive with -s.")
        return int(number)
    with _archive(path, md5sum) as file:
        return _sent(client, file, path, md5sum)


def _sent(client: Client, file: IO[bytes], path: str, wanted: str | None) -> int:
    md5, sha256, size = hashlib.md5(usedforsecurity=False), hashlib.sha256(), 0
    while data := file.read(_PIECE):
        md5.update(data)
        sha256.update(data)
        size += len(data)
    if wanted is not None and md5.hexdigest() != wanted:
        raise _refused(
            f"{path} has the MD5 sum {md5.hexdigest()}, not {wanted}.", "Look whether it is the right file, whole."
        )
    number = client.find_file(sha256=sha256.hexdigest())
    return int(client.send_file(file, size, md5.hexdigest()) if number is None else number)


def _archive(path: str, md5sum: str | None) -> IO[bytes]:
    """Open an archive, or pack a directory into a file without a name."""
    try:
        if not path:
            raise _refused("-s names no file.", "Give a directory, or a .tgz file.")
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            if md5sum is not None:
                raise _refused(
                    f"{path} is a directory, which has no MD5 sum.", "Give an archive, or leave out the sum."
                )
            return _packed(path)
        if not stat.S_ISREG(mode):
            raise _refused(f"{path} is neither a directory nor an archive.", "Give a directory, or a .tgz file.")
        file = open(path, "rb")  # noqa: SIM115 - the caller closes it
    except (OSError, ValueError) as why:
        text = getattr(why, "strerror", None) or why
        raise _refused(f"{path} cannot be read: {text}.", "Look at its path.") from None
    if file.read(2) != b"\x1f\x8b":
        file.close()
        raise _refused(f"{path} is not compressed with gzip.", f"tar -czf ARCHIVE.tgz {path}")
    file.seek(0)
    return file


def _packed(folder: str) -> IO[bytes]:
    import gzip
    import tarfile

    packed = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    try:
        with (
            gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=packed, mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as archive,
        ):
            for name, path, about in _contents(folder):
                entry = tarfile.TarInfo(name)
                entry.mode, entry.mtime = stat.S_IMODE(about.st_mode), int(about.st_mtime)
                _add(archive, entry, path, about)
    except (OSError, ValueError) as why:
        packed.close()
        text = getattr(why, "strerror", None) or why
        raise _refused(
            f"{folder} cannot be packed: {text}.", "Look at what is in it, and whether $TMPDIR is full."
        ) from None
    except BaseException:
        packed.close()
        raise
    packed.seek(0)
    return packed


def _add(archive: Any, entry: Any, path: str, about: os.stat_result) -> None:
    if stat.S_ISDIR(about.st_mode):
        entry.type = b"5"
        entry.mode &= ~_SPECIAL_BITS  # setgid of a directory is a habit of its place, not of its content
        archive.addfile(entry)
        return
    with open(path, "rb") as file:
        entry.size = os.fstat(file.fileno()).st_size
        archive.addfile(entry, file)


def _contents(folder: str) -> Iterator[tuple[str, str, os.stat_result]]:
    """Yield what is in a directory, by name, in an order that is always the same; links and devices are refused."""
    for path, folders, names in os.walk(folder, onerror=_raise):
        folders.sort()
        for name in sorted([*folders, *names]):
            whole = os.path.join(path, name)
            about = os.lstat(whole)
            if not (stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)):
                what = "a link" if stat.S_ISLNK(about.st_mode) else "neither a file nor a directory"
                raise _refused(f"{whole} is {what}: only files and directories are brought to nodes.", "Leave it out.")
            if stat.S_ISREG(about.st_mode) and about.st_mode & _SPECIAL_BITS:
                mode = stat.S_IMODE(about.st_mode)
                raise _refused(f"{whole} has the mode {mode:04o}: setuid, setgid and sticky are not brought to nodes.",
                               f"chmod u-s,g-s,-t {whole}")  # fmt: skip
            yield os.path.relpath(whole, folder), whole, about


def _raise(problem: OSError) -> None:
    raise problem


def _refused(sentence: str, hint: str) -> RequestRefused:
    return RequestRefused(sentence, kind=_KIND, hint=hint)
