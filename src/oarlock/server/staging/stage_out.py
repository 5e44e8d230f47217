"""What jobs wrote on desktops, on its way home: fetched, checked, and kept for the job's user as `JOB.tgz`."""

import asyncio
import errno
import hashlib
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeVar

from oarlock.config import Config
from oarlock.job.run.effects import RunEpilogue, StageOut
from oarlock.model.errors import NodeRefused, NodeUnreachable
from oarlock.model.job import Job
from oarlock.node import trust
from oarlock.node.archive import ArchiveReader, BadArchive
from oarlock.server.staging.stage_in import move_durably
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import jobs

log = logging.getLogger(__name__)

T = TypeVar("T")

_SPARE = 64 << 20  # bytes of the disk that no archive takes
_AGAIN_SECONDS = 1.0  # between two tries to reach a desktop
_AT_ONCE = 8  # archives that are fetched at the same time
_NAMES = re.compile(r"[0-9]+\.tgz|new\.[0-9]+\.[0-9]+")
_HOUR = 3600


class FileNode(Protocol):
    """A node that keeps archives."""

    async def fetch_file(
        self, job: int, attempt: int, size: int, write: Callable[[bytes], Awaitable[None]]
    ) -> None: ...


class JobReader(Protocol):
    """What is needed of the server: its database."""

    async def read(self, question: Callable[[Tx], T]) -> T: ...


class NotKept(Exception):
    """An archive that is not kept; the text is a sentence."""


class StageOutStore:
    """The archives of jobs. Everybody can enter the folder; each archive is its user's alone."""

    def __init__(self, config: Config, state_dir: Path, server: JobReader) -> None:
        self._config, self._server = config, server
        self._folder = config.stageout_dir or state_dir / "stageouts"
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def fetch(self, epilogue: RunEpilogue, node: Callable[[str], FileNode]) -> str:
        """Fetch what a job wrote, however often its desktop loses the connection; return what went wrong."""
        archive = epilogue.stage_out
        if archive is None:
            return ""
        job = await self._server.read(lambda tx: jobs.get(tx, epilogue.job))
        path = self._folder / f"new.{epilogue.job}.{epilogue.attempt}"
        try:
            async with asyncio.timeout(self._config.stageout_timeout), self._slots:
                await self._receive(epilogue, archive, node, path)
                await asyncio.to_thread(self._keep, path, job)
        except TimeoutError:
            return self._lost(archive, f"it did not come within {self._config.stageout_timeout} s")
        except (NotKept, NodeRefused, OSError, trust.UnsafeDirectory) as problem:
            return self._lost(archive, str(problem))
        finally:
            path.unlink(missing_ok=True)
        log.info("what a job wrote is here", extra={"job": job.id, "node": archive.node, "bytes": archive.size})
        return ""

    def _lost(self, archive: StageOut, why: str) -> str:
        return f"what the job wrote on {archive.node} ({archive.size} bytes) is lost: {why}"

    async def _receive(
        self, epilogue: RunEpilogue, archive: StageOut, node: Callable[[str], FileNode], path: Path
    ) -> None:
        while True:
            try:
                with await asyncio.to_thread(self._opened, path, archive.size) as file:

                    async def write(data: bytes, file: "HashedFile" = file) -> None:
                        await asyncio.to_thread(file.write, data)

                    await node(archive.node).fetch_file(epilogue.job, epilogue.attempt, archive.size, write)
                    await asyncio.to_thread(file.finish, archive.sha256)
            except NodeUnreachable:
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                return

    def _opened(self, path: Path, size: int) -> "HashedFile":
        most = self._config.stageout_max_size
        if size > most << 20:
            raise NotKept(f"it has more than the {most} MiB that are brought back")
        trust.prepare(str(self._folder), 0o755)
        about = os.statvfs(self._folder)
        if about.f_bavail * about.f_frsize < size + _SPARE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._folder))
        return HashedFile(path)

    def _keep(self, path: Path, job: Job) -> None:
        """Check an archive as one of stage-in is, give it to the job's user, and give it its name."""
        with path.open("rb") as file:
            try:
                # The headers of many small files have more bytes than the files.
                ArchiveReader(file.read, most=2 * (self._config.stageout_max_size << 20) + (128 << 20)).check()
            except BadArchive as problem:
                raise NotKept(f"the archive is not kept: {problem}") from problem
        if os.geteuid() == 0 and job.uid is not None:
            os.chown(path, job.uid, -1)
        move_durably(path, self._folder / f"{job.id}.tgz")

    def remove_old(self) -> None:
        """Remove the archives that were kept long enough, and what a server that died left unfinished."""
        if not self._folder.is_dir():
            return
        before = time.time() - self._config.stageout_expiry * _HOUR
        for path in self._folder.iterdir():
            limit = before if path.suffix == ".tgz" else time.time() - 2 * self._config.stageout_timeout
            if _NAMES.fullmatch(path.name) and path.lstat().st_mtime < limit:
                path.unlink(missing_ok=True)


class HashedFile:
    """A file that is written from its beginning, with its sum."""

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.fdopen(os.open(path, flags, 0o600), "wb")
        self._sha256 = hashlib.sha256()

    def __enter__(self) -> "HashedFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: bytes) -> None:
        """Write bytes."""
        self._file.write(data)
        self._sha256.update(data)

    def finish(self, sha256: str) -> None:
        """Force it to the disk; raise `NotKept` if it does not have this sum."""
        if self._sha256.hexdigest() != sha256:
            raise NotKept("it arrived with another sum")
        self._file.flush()
        os.fsync(self._file.fileno())
