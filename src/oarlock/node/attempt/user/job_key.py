"""The private key of a job on its nodes: a file that root writes into the runtime directory and gives to the user.

A generated pair is made here by ssh-keygen and never leaves the node but for its public half. A key that the user
brought comes over the channel just before the launch, and never gets into the spool.
"""

from __future__ import annotations

import os
import re

from oarlock.node.attempt.spool import Key, entry_name, remove, write_all
from oarlock.node.attempt.user.environment import JobFiles

_KEYGEN = ("/usr/bin/ssh-keygen", "/usr/local/bin/ssh-keygen", "/bin/ssh-keygen")
_NAME = re.compile(r"(\d+)\.(\d+)\.key(\.pub)?")
_PR_SET_DUMPABLE = 4  # of prctl(2)


class KeyNotMade(Exception):
    """A pair could not be made on this node."""


def make_pair(path: str, comment: str) -> str:
    """Make a pair, the private half at a path where only root writes; return the public half."""
    program = next((place for place in _KEYGEN if os.access(place, os.X_OK)), "")
    if not program:
        raise KeyNotMade(f"{_KEYGEN[0]} is not on this node: the job's key cannot be made")
    public = f"{path}.pub"
    for leftover in (path, public):
        remove(leftover)
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path]
    null = [(os.POSIX_SPAWN_OPEN, at, os.devnull, os.O_RDWR, 0) for at in range(3)]
    pid = os.posix_spawn(program, words, {"PATH": "/usr/bin:/bin"}, file_actions=null)
    status = os.waitpid(pid, 0)[1]
    try:
        with open(public, encoding="ascii") as file:
            text = file.read().strip()
    except (OSError, ValueError) as error:
        raise KeyNotMade(f"ssh-keygen made no key (wait status {status}): {error}") from error
    finally:
        remove(public)
    os.chmod(path, 0o400)
    return text


def hide_memory() -> None:
    """Keep the memory of this process, which has seen a key, out of core files; exec ends that."""
    import ctypes  # here: few programs ever see a key

    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


class BroughtKeys:
    """Keys that came over the channel; one whose launch does not follow is removed."""

    def __init__(self, runtime: str) -> None:
        self._runtime = runtime
        self._waiting: set[Key] = set()

    def put(self, key: Key, text: str) -> None:
        """Write the key of an attempt that is about to be launched; nobody but root can read it yet."""
        hide_memory()
        self.drop(key)
        fd = os.open(self._path(key), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o400)
        self._waiting.add(key)
        try:
            write_all(fd, text.encode())
        except OSError:
            self.drop(key)
            raise
        finally:
            os.close(fd)

    def claim(self, key: Key) -> None:
        """Leave the key of an attempt to its supervisor, which removes it at the end."""
        self._waiting.discard(key)

    def drop_waiting(self, key: Key) -> None:
        """Remove the key of an attempt that is refused, if its launch was awaited; another may have its number."""
        if key in self._waiting:
            self.drop(key)

    def drop(self, key: Key) -> None:
        """Remove the key of an attempt that does not begin."""
        self._waiting.discard(key)
        remove(self._path(key))

    def close(self) -> None:
        """Remove the keys whose launch never came."""
        for key in list(self._waiting):
            self.drop(key)

    def remove_orphans(self, keys: set[Key]) -> None:
        """Remove the keys of attempts that are not in the spool: a program that was killed left them."""
        try:
            names = os.listdir(self._runtime)
        except FileNotFoundError:  # a runtime directory goes with a reboot, and keys with it
            return
        for name in names:
            match = _NAME.fullmatch(name)
            if match and (int(match[1]), int(match[2])) not in keys:
                remove(os.path.join(self._runtime, name))

    def _path(self, key: Key) -> str:
        return JobFiles.of(self._runtime, entry_name(key)).key
