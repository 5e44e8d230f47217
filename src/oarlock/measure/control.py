"""Change an agent while it runs: one JSON line over a local socket, from root or the agent's own user only.

The kernel says who is at the other end (SO_PEERCRED); nothing in the message does. Samples never travel here.
"""

import json
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from oarlock.measure.options import AgentOptions
from oarlock.model.errors import ConfigRefused, OarlockError

log = logging.getLogger(__name__)

LONGEST_MESSAGE = 64 * 1024
TIMEOUT_SECONDS = 5.0
_CREDENTIALS = struct.Struct("3i")
SHOWN = ("period", "sources", "names", "perf_events", "layout", "jobs_only", "listen", "json", "csv", "push")


class ControlRefused(OarlockError):
    """What an agent did not do, in its own words."""


def default_path() -> Path:
    """Return the path of the socket of this user's agent."""
    if os.geteuid() == 0:
        return Path("/run/oarlock/agent.sock")
    run = os.environ.get("XDG_RUNTIME_DIR")
    return Path(run) / "oarlock-agent.sock" if run else Path(f"/tmp/oarlock-agent-{os.geteuid()}.sock")  # noqa: S108


def shown(options: AgentOptions) -> dict[str, Any]:
    """Return the settings that people may want to see or change."""
    return {field.name: getattr(options, field.name) for field in fields(options) if field.name in SHOWN}


class ControlSocket:
    """Listen for changes in a thread; `change` is called with each, and the settings afterwards are sent back.

    `status` returns what is to be told beside them.
    """

    def __init__(
        self,
        path: Path,
        change: Callable[[Mapping[str, Any]], AgentOptions],
        status: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self.path, self._change, self._status = path, change, status
        self._socket = _bound(path)
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and remove the socket."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
        self.path.unlink(missing_ok=True)

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            with connection:
                connection.settimeout(TIMEOUT_SECONDS)
                try:
                    self._serve(connection)
                except OSError as error:
                    log.info("a change was not received: %s", error)

    def _serve(self, connection: socket.socket) -> None:
        uid, line = peer_uid(connection), _line(connection)
        if uid not in {0, os.geteuid()}:
            log.warning("a change by another user was refused", extra={"uid": uid})
            answer: dict[str, Any] = {"refused": "Only root and the agent's own user may change it."}
        else:
            answer = self._answer(line)
        connection.sendall(json.dumps(answer, default=str).encode() + b"\n")

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            changes = json.loads(line)
            if not isinstance(changes, dict):
                return {"refused": "A change is a JSON object."}
            return {"now": {**shown(self._change(changes)), **self._status()}}
        except OarlockError as refused:
            return {"refused": str(refused), "hint": refused.hint}
        except (ValueError, TypeError) as error:
            return {"refused": f"The change cannot be read: {error}."}
        except TimeoutError:
            return {"refused": "The agent did not apply it in time.", "hint": "It may still be applied."}


def ask(path: Path, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Send changes to an agent and return its settings afterwards; without changes, only read them."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT_SECONDS * 8)
        try:
            connection.connect(str(path))
            connection.sendall(json.dumps(changes).encode() + b"\n")
            answer = json.loads(_line(connection))
        except (OSError, ValueError) as error:
            raise ControlRefused(f"No agent answers at {path}: {error}.", hint="Is it running? --control PATH names "
                                 "another socket.") from error  # fmt: skip
    if "refused" in answer:
        raise ControlRefused(answer["refused"], hint=answer.get("hint", ""))
    now: dict[str, Any] = answer["now"]
    return now


def peer_uid(connection: socket.socket) -> int:
    """Ask the kernel which user is at the other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(credentials)[1]
    return uid


def _bound(path: Path) -> socket.socket:
    if _in_use(path):
        raise ConfigRefused(f"Another agent has the socket {path}.", hint="Give --control PATH or --control none.")
    listening = socket.socket(socket.AF_UNIX)
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            listening.bind(str(path))
        finally:
            os.umask(before)
        listening.listen(8)
    except OSError as error:
        listening.close()
        raise ConfigRefused(f"The socket {path} cannot be made: {error.strerror}.",
                            hint="Give --control PATH or --control none.") from error  # fmt: skip
    return listening


def _in_use(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as attempt:
        try:
            attempt.connect(str(path))
        except OSError:
            return False
        return True


def _line(connection: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"\n"):
        piece = connection.recv(LONGEST_MESSAGE)
        received += piece
        if not piece:
            break
        if len(received) > LONGEST_MESSAGE:
            raise OSError("the message is too long")
    return received
