"""The archives of stage-in on the server: received in pieces, checked, kept once by content, and removed in time."""

import asyncio
import contextlib
import errno
import hashlib
import logging
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, TypeVar

from oarlock.config import Config
from oarlock.model.errors import OarlockError
from oarlock.model.submission_errors import StageInRefused
from oarlock.node import trust
from oarlock.node.archive import ArchiveReader, BadArchive
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import files
from oarlock.store.queries.job.files import StoredFile
from oarlock.web.identity import UserAccount

log = logging.getLogger(__name__)

T = TypeVar("T")

_PIECE = 1 << 20
_SPARE = 64 << 20  # bytes of the disk that no archive takes
_NAMES = re.compile(r"[0-9a-f]{64}|upload\.[0-9a-f]{16}")
_ORPHAN_SECONDS = 3600.0


class StagingServer(Protocol):
    """What is needed of the server: its database, and threads for what takes long."""

    async def write(self, change: Callable[[Tx], T]) -> T: ...
    async def read(self, question: Callable[[Tx], T]) -> T: ...
    async def compute(self, work: Callable[[], T], *, user: str) -> T: ...


class _Sums(NamedTuple):
    """The sums of what was received."""

    md5sum: str
    sha256: str


def archive_folder(config: Config, state_dir: Path) -> Path:
    """Return where archives are kept, each under its SHA-256."""
    return config.stagein_dir or state_dir / "stageins"


class ArchiveStore:
    """Archives of users. Only the server's own account can enter the folder."""

    def __init__(self, config: Config, folder: Path, server: StagingServer) -> None:
        self._config, self._folder, self._server = config, folder, server
        self._under_way: Counter[str] = Counter()  # bytes that are being received, by user
        # Held while a file appears with its row or goes with its last one: each does two things that belong together.
        self._lock = asyncio.Lock()

    async def receive(
        self,
        account: UserAccount,
        pieces: AsyncIterator[bytes],
        *,
        size: int,
        md5sum: str | None,
        now: int,
        note: Callable[[Tx], None],
    ) -> StoredFile:
        """Store what a user sends; `StageInRefused` leaves nothing behind. `note` is called when it is stored."""
        with self._counted(account.name, size):
            await self._check_limits(account.name, size)
            path = self._folder / f"upload.{secrets.token_hex(8)}"
            try:
                with _full_disk():
                    sums = await self._write(path, pieces, size)
                _check_sum(md5sum, sums)
                await self._server.compute(lambda: self._check_content(path), user=account.name)
                file = StoredFile(0, sums.md5sum, sums.sha256, size, account.name, account.uid)
                return await self._keep(path, file, now=now, note=note)
            finally:
                path.unlink(missing_ok=True)

    @contextmanager
    def _counted(self, user: str, size: int) -> Iterator[None]:
        self._under_way[user] += size
        try:
            yield
        finally:
            self._under_way[user] -= size
            if not self._under_way[user]:
                del self._under_way[user]

    async def _check_limits(self, user: str, size: int) -> None:
        largest, most = self._config.stagein_max_size, self._config.stagein_max_per_user
        if size > largest << 20:
            raise StageInRefused(
                f"The archive has {_mib(size)} MiB; {largest} MiB are taken at most.",
                hint="Put large files where the nodes can read them.",
            )
        before = await self._server.read(lambda tx: files.bytes_of(tx, user))
        if before + self._under_way[user] > most << 20:
            raise StageInRefused(
                f"Your archives would have {_mib(before + self._under_way[user])} MiB together; {most} MiB are kept at "
                "most.",
                hint=f"They are removed {self._config.stagein_cache_expiry} hours after their last use.",
            )
        with _full_disk():
            await asyncio.to_thread(self._make_room, size)

    def _make_room(self, size: int) -> None:
        try:
            trust.prepare(str(self._folder), 0o700)
        except trust.UnsafeDirectory as problem:
            log.warning("archives cannot be kept", extra={"why": str(problem)})
            raise StageInRefused(
                "The server's folder for archives is not safe.", hint="Tell an administrator."
            ) from None
        about = os.statvfs(self._folder)
        if about.f_bavail * about.f_frsize < size + _SPARE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def _write(self, path: Path, pieces: AsyncIterator[bytes], size: int) -> _Sums:
        """Write what is received; more or less than was announced is refused."""
        # Sums of content, not of secrets: where only approved algorithms are allowed, MD5 still is for this.
        md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
        waiting = bytearray()
        received = 0

        def write(file: BinaryIO, data: bytes) -> None:
            file.write(data)
            md5.update(data)
            sha256.update(data)

        file = await asyncio.to_thread(_opened, path)
        try:
            async for piece in pieces:
                waiting += piece
                received += len(piece)
                if received > size:
                    break
                if len(waiting) >= _PIECE:
                    await asyncio.to_thread(write, file, bytes(waiting))
                    waiting.clear()
            await asyncio.to_thread(write, file, bytes(waiting))
            await asyncio.to_thread(_flushed, file)
        finally:
            file.close()
        if received != size:
            raise StageInRefused(f"The archive was to have {size} bytes, and {received} came.", hint="Send it again.")
        return _Sums(md5.hexdigest(), sha256.hexdigest())

    def _check_content(self, path: Path) -> None:
        with path.open("rb") as file:
            try:
                ArchiveReader(file.read, most=self._config.stagein_max_unpacked << 20).check()
            except BadArchive as problem:
                raise StageInRefused(
                    f"The archive is not taken: {problem}.",
                    hint="It is a tar archive compressed with gzip that holds plain files and directories.",
                ) from None

    async def _keep(self, path: Path, file: StoredFile, *, now: int, note: Callable[[Tx], None]) -> StoredFile:
        location = self._folder / file.sha256

        def add(tx: Tx) -> int:
            note(tx)
            return files.add(tx, file, location=str(location), now=now)

        async with self._lock:
            with _full_disk():
                await asyncio.to_thread(move_durably, path, location)
            number = await self._server.write(add)
        log.info("archive stored", extra={"user": file.user, "bytes": file.size, "file": number})
        return file._replace(id=number)

    async def remove_unused(self, *, now: int) -> None:
        """Remove archives that nobody needs any more, and what a server that died left of uploads."""
        before = now - self._config.stagein_cache_expiry * 3600
        async with self._lock:
            if not await asyncio.to_thread(self._folder.is_dir):
                return
            await self._server.write(lambda tx: files.remove_unused(tx, before=before))
            kept = await self._server.read(files.sums)
            await asyncio.to_thread(self._remove_all_but, kept)

    def _remove_all_but(self, kept: set[str]) -> None:
        for path in self._folder.iterdir():
            if _NAMES.fullmatch(path.name) and path.name not in kept:
                is_upload = path.name.startswith("upload.")
                with contextlib.suppress(FileNotFoundError):
                    if not is_upload or time.time() - path.stat().st_mtime > _ORPHAN_SECONDS:
                        path.unlink()


def _opened(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def _flushed(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def move_durably(path: Path, location: Path) -> None:
    """Move a file to its name; one that is there has the same content."""
    path.rename(location)
    folder = os.open(location.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)  # before its row: a row must not name a file that a power cut has undone
    finally:
        os.close(folder)


def _check_sum(md5sum: str | None, sums: _Sums) -> None:
    if md5sum is not None and md5sum != sums.md5sum:
        raise StageInRefused(
            f"The archive has the MD5 sum {sums.md5sum}, not {md5sum}.",
            hint="Look whether it is the right file, whole.",
        )


@contextmanager
def _full_disk() -> Iterator[None]:
    """Turn a disk that takes no more into a refusal."""
    try:
        yield
    except OarlockError:
        raise
    except OSError as problem:
        log.warning("archive could not be kept", extra={"why": str(problem)})
        raise StageInRefused(
            f"The server cannot keep the archive: {problem.strerror}.",
            hint="Try again later, or tell an administrator.",
        ) from None


def _mib(size: int) -> int:
    return -(-size >> 20)
