"""The pusher of scripts: watches the spool of a Slurm server, and sends the script of each new job once.

Slurm's controller keeps the script of a job that is not over in `hash.N/job.ID/script` of its StateSaveLocation. The
kernel tells of new directories; a look at all of them each minute finds what was missed. What was sent is remembered
in a file, over restarts.
"""

import logging
import os
import re
import select
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

from oarlock.measure.posting.https import ServerConnection
from oarlock.model.errors import ConfigRefused, OarlockError
from oarlock.node.measure.inotify import Inotify

log = logging.getLogger(__name__)

SPOOL = Path("/var/spool/slurmctld")
LONGEST = 1 << 20
"""Bytes of a script that are sent; of a longer one its beginning."""

_HASH, _JOB = re.compile(r"hash\.\d+"), re.compile(r"job\.(\d+)")
_LOOK_SECONDS = 60.0
_SETTLE_SECONDS = 0.5  # a script that changed within that may still be written
_YOUNG_SECONDS = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_NEVER = {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE}


class SentScripts:
    """The jobs whose scripts were sent, in a file with a number a line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(0o755, parents=True, exist_ok=True)
            path.touch(0o600)
            self._jobs = {int(line) for line in path.read_text().split() if line.isdecimal()}
        except OSError as error:
            raise ConfigRefused(
                f"{path} cannot be written: {error.strerror}.", hint="Name another file with --sent."
            ) from error

    def __contains__(self, job: int) -> bool:
        return job in self._jobs

    def add(self, job: int) -> None:
        """Remember a job."""
        self._jobs.add(job)
        with self._path.open("a") as file:
            file.write(f"{job}\n")

    def keep(self, present: set[int]) -> None:
        """Forget jobs that are not in the spool any more."""
        if len(self._jobs) > 2 * len(self._jobs & present) + 1000:
            self._jobs &= present
            early = self._path.with_name(f"{self._path.name}.new")
            early.write_text("".join(f"{job}\n" for job in sorted(self._jobs)))
            early.replace(self._path)


class ScriptPusher:
    """Sends scripts of one spool to one server. For one thread; `stop` may be called from a signal handler."""

    def __init__(self, spool: Path, connection: ServerConnection, sent: SentScripts) -> None:
        if not spool.is_dir():
            raise ConfigRefused(
                f"There is no directory {spool}.", hint="StateSaveLocation in slurm.conf names it; give it as --spool."
            )
        self._spool, self._connection, self._sent = spool, connection, sent
        self._inotify = Inotify()
        self._over = False
        self._complaint = ""
        self.pushed = 0

    def run(self) -> None:
        """Send scripts until `stop`."""
        pause = _FIRST_PAUSE
        while not self._over:
            self._watch()
            whole, settled = self.push()
            if whole:
                pause = _FIRST_PAUSE
                self._wait(_LOOK_SECONDS if settled else _SETTLE_SECONDS)
            else:
                self._pause(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    def stop(self) -> None:
        """End `run` soon."""
        self._over = True

    def close(self) -> None:
        """Close the connection and end the watches."""
        self._connection.close()
        self._inotify.close()

    def push(self) -> tuple[bool, bool]:
        """Send what was not sent; return whether the server took all of it, and whether nothing is being written."""
        settled, present = True, set()
        for job, path in self._scripts():
            present.add(job)
            if job in self._sent or self._over:
                continue
            script = _read(path)
            if script is None:
                settled = settled and not _is_young(path.parent)
            elif not self._send(job, script):
                return False, settled
        self._sent.keep(present)
        return True, settled

    def _scripts(self) -> Iterator[tuple[int, Path]]:
        for folder in sorted(self._spool.iterdir()):
            if not _HASH.fullmatch(folder.name) or not folder.is_dir():
                continue
            for place in sorted(folder.iterdir()):
                if job := _JOB.fullmatch(place.name):
                    yield int(job[1]), place / "script"

    def _send(self, job: int, script: bytes) -> bool:
        """Send a script; return False if it has to be sent again later."""
        try:
            reply = self._connection.request("PUT", f"/api/v1/jobscripts/{job}", script, "text/plain")
        except (OSError, OarlockError) as error:
            return self._complain(str(error) or type(error).__name__)
        if reply.status in _NEVER:
            log.warning("a script is refused: %s", reply.sentence, extra={"job": job})
        elif reply.status != HTTPStatus.OK:
            return self._complain(f"{reply.status} {reply.sentence}")
        else:
            log.info("script sent", extra={"job": job})
            self.pushed += 1
        self._complaint = ""
        self._sent.add(job)
        return True

    def _complain(self, why: str) -> bool:
        if why != self._complaint:
            log.warning("scripts are not taken: %s", why)
        self._complaint = why
        return False

    def _watch(self) -> None:
        """Watch the spool and its folders; those that are watched already stay so."""
        for folder in (self._spool, *(place for place in self._spool.iterdir() if _HASH.fullmatch(place.name))):
            try:
                self._inotify.watch(str(folder))
            except OSError as error:
                log.debug("a folder is not watched: %s", error)

    def _wait(self, seconds: float) -> None:
        """Wait for a change in the spool, for so long at most."""
        end = time.monotonic() + seconds
        while not self._over and (left := end - time.monotonic()) > 0:
            if select.select([self._inotify], [], [], min(left, 1.0))[0]:
                list(self._inotify.changes())
                return

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._over and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))


def _is_young(folder: Path) -> bool:
    """Return whether a script may still come: some jobs have none."""
    try:
        return time.time() - folder.stat().st_mtime < _YOUNG_SECONDS
    except OSError:
        return False


def _read(path: Path) -> bytes | None:
    """Read a script as text without NUL; None if it is not there yet, or may still be written."""
    try:
        with path.open("rb") as file:
            if time.time() - os.fstat(file.fileno()).st_mtime < _SETTLE_SECONDS:
                return None
            data = file.read(LONGEST + 1)
    except OSError:
        return None
    text = data.replace(b"\0", b"").decode("utf-8", "replace")
    if len(data) > LONGEST:
        log.warning("only the beginning of a script is sent", extra={"file": str(path), "bytes": LONGEST})
    # What is not UTF-8 became longer.
    return text.encode()[:LONGEST].decode("utf-8", "ignore").encode()
