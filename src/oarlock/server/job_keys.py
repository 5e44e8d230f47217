"""The vault: private keys that users brought for their jobs, encrypted in the state directory while a job needs them.

A file is named after the fingerprint, so jobs with the same key share it. It is encrypted with a key derived from a
secret of the database: neither a copy of the database nor one of this folder has a private key in it. Files are written
before their jobs and removed after them; what a crash leaves in between is removed at the next start.
"""

import asyncio
import base64
import contextlib
import logging
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from oarlock.job.admission.private_key import ImportedKey
from oarlock.model.errors import OarlockError
from oarlock.model.submission_errors import KeyNotStored
from oarlock.node import trust
from oarlock.node.attempt.user.job_key import hide_memory
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import job_keys

log = logging.getLogger(__name__)

_SALT, _NONCE = 16, 12  # bytes
_LEAST_PAUSE, _LONGEST_PAUSE, _SHARE = 0.02, 1.0, 5.0  # seconds between two looks; times as long as one took

Read = Callable[[Callable[[Tx], dict[str, set[str]]]], Awaitable[dict[str, set[str]]]]


class KeyVault:
    """The private keys of all jobs that are not over. `secret` is the instance's own; `read` runs a query."""

    def __init__(self, folder: Path, secret: bytes, read: Read) -> None:
        self._folder, self._secret, self._read = folder, secret, read
        self._stored: set[str] = set()  # fingerprints
        self._held: Counter[str] = Counter()  # of submissions under way
        self._touched: set[str] = set()  # held since the last look began
        self._to_look = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Find what is stored, and remove what no job needs."""
        self._stored = await asyncio.to_thread(self._list)
        self.wake()

    @contextlib.asynccontextmanager
    async def holding(self, key: ImportedKey) -> AsyncIterator[None]:
        """Store a key for the jobs that are stored inside; without a job it is removed again."""
        self._held[key.fingerprint] += 1
        self._touched.add(key.fingerprint)
        try:
            if key.fingerprint not in self._stored:
                await asyncio.to_thread(self._write, key)
                self._stored.add(key.fingerprint)
            yield
        finally:
            self._held[key.fingerprint] -= 1
            if not self._held[key.fingerprint]:
                del self._held[key.fingerprint]
            self.wake()

    async def private_key(self, fingerprint: str) -> str | None:
        """Return the private key of a fingerprint; None if it is not here, or was stored for another database."""
        return await asyncio.to_thread(self._read_file, fingerprint)

    def wake(self) -> None:
        """Look whether jobs have ended; costs nothing while no key is stored."""
        if not self._stored:
            return
        self._to_look.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())

    async def close(self) -> None:
        """Stop looking; keys of jobs that live stay."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _look(self) -> None:
        """Remove the keys whose jobs are over, whenever something was written, until none is stored."""
        while self._stored:
            await self._to_look.wait()
            self._to_look.clear()
            began = time.monotonic()
            try:
                await self._remove_unused()
            except (OarlockError, OSError) as problem:
                log.warning("keys of ended jobs are still stored", extra={"why": str(problem)})
                self._to_look.set()
            took = time.monotonic() - began
            await asyncio.sleep(min(max(_LEAST_PAUSE, _SHARE * took), _LONGEST_PAUSE))

    async def _remove_unused(self) -> None:
        self._touched = set(self._held)
        stored = set(self._stored)
        live = await self._read(lambda tx: job_keys.live_owners(tx, stored))
        # Touched: a submission came after the database was read.
        for fingerprint in stored - live.keys() - self._touched:
            self._stored.discard(fingerprint)
            self._path(fingerprint).unlink(missing_ok=True)

    # Files.

    def _path(self, fingerprint: str) -> Path:
        return self._folder / _file_name(fingerprint)

    def _list(self) -> set[str]:
        stored: set[str] = set()
        for path in self._folder.iterdir() if self._folder.is_dir() else ():
            if (fingerprint := _fingerprint(path.name)) is None:
                path.unlink()  # half a file of a server that died
            else:
                stored.add(fingerprint)
        return stored

    def _write(self, key: ImportedKey) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        hide_memory()
        salt, nonce = os.urandom(_SALT), os.urandom(_NONCE)
        cipher = ChaCha20Poly1305(self._key(salt))
        data = salt + nonce + cipher.encrypt(nonce, key.private.encode(), key.fingerprint.encode())
        path = self._path(key.fingerprint)
        new = path.with_name(f"new.{path.name}")
        try:
            trust.prepare(str(self._folder), 0o700)
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
            # The name as well before the job is acknowledged: it could not start without its key.
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as problem:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
            raise KeyNotStored(str(problem.strerror)) from problem

    def _read_file(self, fingerprint: str) -> str | None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        hide_memory()
        try:
            data = self._path(fingerprint).read_bytes()
            salt, nonce, sealed = data[:_SALT], data[_SALT : _SALT + _NONCE], data[_SALT + _NONCE :]
            return ChaCha20Poly1305(self._key(salt)).decrypt(nonce, sealed, fingerprint.encode()).decode()
        except (OSError, ValueError, InvalidTag) as problem:
            log.warning("the key of a job cannot be read", extra={"why": str(problem) or type(problem).__name__})
            return None

    def _key(self, salt: bytes) -> bytes:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        return HKDF(SHA256(), length=32, salt=salt, info=b"private keys of jobs").derive(self._secret)


def _file_name(fingerprint: str) -> str:
    return base64.b64decode(fingerprint.removeprefix("SHA256:") + "=", validate=True).hex()


def _fingerprint(name: str) -> str | None:
    """Return the fingerprint of a file; None of one that was not finished, or is none of ours."""
    try:
        digest = bytes.fromhex(name)
    except ValueError:
        return None
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}" if len(digest) == 32 else None
