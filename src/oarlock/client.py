"""The only way in for commands: one HTTP request on a Unix socket or over TCP. Standard library only.

A command pays for every import each time it runs, hence the C module `_socket` instead of `socket`, and HTTP and JSON
by hand. Who is asking is decided by the kernel (Unix socket), by a token or by munge (TCP), never by a request.
"""

from __future__ import annotations

import _socket
import os
import time

from oarlock.client_connection import (
    CONNECT_SECONDS,
    VARIABLE,
    RequestRefused,
    addresses,
    default_server,
    munge_credential,
    open_any,
    open_connection,
    open_session_tls,
    open_tls,
    user_token,
)
from oarlock.minimal_http import BrokenResponse, NotHttp, quoted, read, received, switched, written

TYPE_CHECKING = False  # importing `typing` costs as much as half a command
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["Client", "RequestRefused", "request_id"]

API = "/api/v1"

RETURN_SECONDS = 15.0
"""How long a server that broke off a change is given: with a long queue a restart takes some seconds, and to give up
leaves it open whether the change was made. A site with two servers is given as long for one to take over."""
ANSWER_SECONDS = 120.0
"""How long an answer may take; a reservation is answered once it was planned."""
TURN_SECONDS = 20.0
"""How long an answer may take before another address of the same site is tried: a server that is frozen takes
connections and never answers, and its standby server has taken over by then."""
ATTEMPTS = 4
"""How often a request is sent whose connection breaks before the answer; its id makes that one request."""

_MAY_COME_BACK = (ConnectionRefusedError, FileNotFoundError, BlockingIOError, TimeoutError)
_UNKNOWN = "Whether it was done is not known: look (oarstat, oarnodes) before you try again."
_AGAIN = "Try again; the server's log says more."
_PAUSE = 0.05
_UNAVAILABLE = 503
_CUT_OFF = (b'"DatabaseRefused"', b'"DatabaseAway"', b'"DatabaseHeld"', b'"Stopping"')
"""Kinds of refusals of a server that is cut off from its database, about to end, or not the active one any more."""
_MOST_AT_ONCE = 500  # jobs whose usage is asked for at once: a request line has its bounds


class Client:
    """One server, found when it is made; every method is one verb of the server's interface.

    A site with a standby server has several addresses, separated by commas: the one that answers is the active one.
    """

    def __init__(self, server: str | None = None) -> None:
        self.server = server or os.environ.get(VARIABLE) or default_server()
        self._addresses = addresses(self.server)
        self._at = 0  # the address that answered last, or is tried next

    def submit(self, submission: dict[str, Any]) -> Any:
        """Make a job, or an array of jobs; waits for the answer to a reservation."""
        return self._change("POST", "/jobs", submission)

    def dry_run(self, submission: dict[str, Any]) -> Any:
        """Ask when and where a submission would start, without submitting it."""
        return self._call("POST", "/jobs/dry-run", "", written(submission).encode("ascii"))

    def advise(self, submission: dict[str, Any]) -> Any:
        """Ask what past runs say about a submission, without submitting it."""
        return self._call("POST", "/jobs/advise", "", written(submission).encode("ascii"))

    def find_file(self, **sums: object) -> Any:
        """Return the number of an archive that was sent before, by one of its sums; None if there is none."""
        return self._get("/files", **sums)["file_id"]

    def send_file(self, file: Any, size: int, md5sum: str) -> Any:
        """Send an archive, from the beginning of an open file; return its number."""
        number = request_id()
        for attempt in range(ATTEMPTS):
            connection = self._connected(self._return_seconds(sent=attempt > 0))
            try:
                where = f"/files?size={size}&md5sum={md5sum}"
                (host, prefix), token = self._address(), self._authorization("PUT", where)
                head = (
                    f"PUT {prefix}{API}{where} HTTP/1.1\r\nHost: {host}\r\n"
                    f"Connection: close\r\n{token}Request-Id: {number}\r\nContent-Type: application/gzip\r\n"
                    f"Content-Length: {size}\r\n\r\n"
                )
                _send_all(connection, head.encode("ascii"), file)
                return _decode(*received(connection), changing=True)["file_id"]
            except (ConnectionError, BrokenResponse):
                self._turn()
            except (TimeoutError, NotHttp):
                break
            finally:
                connection.close()
        raise RequestRefused(f"The server at {self.server} did not take the archive.", kind="NoAnswer", hint=_AGAIN)

    def jobs(self, **query: object) -> Any:
        """List jobs: by `ids`, `array`, `user`, `where`, `states`, `since` and `until`; `full=1` for every field."""
        page = self._get("/jobs", **query)
        jobs = page["jobs"]
        while page.get("next") is not None:
            page = self._get("/jobs", **{**query, "after": page["next"]})
            jobs += page["jobs"]
        return jobs

    def events(self, job_id: int) -> Any:
        """List what happened to a job."""
        return self._get(f"/jobs/{job_id}/events")["events"]

    def node_events(self, **query: object) -> Any:
        """List what happened on `nodes`: `since` an instant, or the last ones up to `limit`."""
        return self._get("/events", **query)["events"]

    def usage(self, ids: list[int]) -> Any:
        """Return what jobs used so far, or in all; jobs that do not exist are left out."""
        slices = [ids[at : at + _MOST_AT_ONCE] for at in range(0, len(ids), _MOST_AT_ONCE)]
        return [job for part in slices for job in self._get("/usage", ids=",".join(map(str, part)))["jobs"]]

    def findings(self, job_id: int) -> Any:
        """Return what was found about a job; nothing where the caller may not see it, or the server is an older one."""
        try:
            return self._get(f"/jobs/{job_id}/findings")["findings"]
        except RequestRefused:
            return []

    def why(self, job_id: int) -> Any:
        """Return why a job waits."""
        return self._get(f"/jobs/{job_id}/why")

    def job_resources(self, job_id: int) -> Any:
        """List the resources of a job."""
        return self._get(f"/jobs/{job_id}/resources")["resources"]

    def delete(self, chosen: dict[str, Any]) -> Any:
        """End jobs, or send them a signal; gives what became of each."""
        return self._change("POST", "/jobs/delete", chosen)["jobs"]

    def hold(self, chosen: dict[str, Any]) -> Any:
        """Keep jobs from starting, or suspend them; gives what became of each."""
        return self._change("POST", "/jobs/hold", chosen)["jobs"]

    def resume(self, chosen: dict[str, Any]) -> Any:
        """Resume jobs; return the result of each."""
        return self._change("POST", "/jobs/resume", chosen)["jobs"]

    def walltime(self, job_id: int) -> Any:
        """Return the walltime of a job, and its changes."""
        return self._get(f"/jobs/{job_id}/walltime")

    def monitor(self, job_id: int, period: int) -> Any:
        """Record a running job every so many seconds; 0 ends that."""
        return self._change("POST", "/jobs/monitor", {"id": job_id, "period": period})

    def monitoring_status(self, job_id: int) -> Any:
        """Return how far the recording of a job is; asking keeps it going."""
        return self._get(f"/jobs/{job_id}/monitoring/status")

    def recorded(self, job_id: int) -> Any:
        """Return what was recorded of a job."""
        return self._get(f"/jobs/{job_id}/monitoring")

    def change_walltime(self, job_id: int, change: dict[str, Any]) -> Any:
        """Request another walltime for a running job."""
        return self._change("POST", "/jobs/walltime", {"id": job_id, **change})

    def rules(self) -> Any:
        """List the admission rules in the table."""
        return self._get("/rules")["rules"]

    def add_rule(self, rule: dict[str, Any]) -> int:
        """Store an admission rule; return its number."""
        return int(self._change("POST", "/rules", rule)["id"])

    def change_rule(self, number: int, change: dict[str, Any]) -> None:
        """Change an admission rule of the table."""
        self._change("POST", "/rules/change", {"id": number, **change})

    def remove_rule(self, number: int) -> None:
        """Remove an admission rule from the table."""
        self._change("DELETE", f"/rules/{number}")

    def resources(self, **query: object) -> Any:
        """List resources, by `where`, `ids` or `nodes`, and the jobs on them."""
        return self._get("/resources", **query)

    def add_resource(self, resource: dict[str, Any]) -> Any:
        """Add resources of one host; gives their ids."""
        return self._change("POST", "/resources", resource)["resource_ids"]

    def set_state(self, change: dict[str, Any]) -> Any:
        """Set the state of resources; return their ids, and the jobs that still run on them."""
        return self._change("POST", "/resources/state", change)

    def set_properties(self, change: dict[str, Any]) -> Any:
        """Change properties of resources; returns their ids, and how many of them changed, by property."""
        return self._change("POST", "/resources/properties", change)

    def remove_resource(self, resource_id: int) -> Any:
        """Remove a resource that is Dead."""
        return self._change("DELETE", f"/resources/{resource_id}")

    def properties(self) -> Any:
        """List the properties that resources have, with their kinds, and which of them are the system's."""
        return self._get("/properties")

    def add_property(self, name: str, kind: str) -> Any:
        """Add a property of the kind `int` or `str`; returns whether it is new."""
        return self._change("POST", "/properties", {"name": name, "kind": kind})["added"]

    def rename_property(self, old: str, new: str) -> Any:
        """Rename a property."""
        return self._change("POST", "/properties/rename", {"old": old, "new": new})

    def delete_property(self, name: str) -> Any:
        """Drop a property with all its values."""
        return self._change("DELETE", f"/properties/{quoted(name)}")

    def queues(self) -> Any:
        """List the queues."""
        return self._get("/queues")["queues"]

    def add_queue(self, queue: dict[str, Any]) -> Any:
        """Add a queue: its `name`, and its `priority` and `policy` where they are not the usual ones."""
        return self._change("POST", "/queues", queue)

    def change_queue(self, queue: dict[str, Any]) -> Any:
        """Set the priority and the policy of a queue."""
        return self._change("POST", "/queues/change", queue)

    def notify(self, tag: str) -> Any:
        """Have the server do at once what a tag stands for."""
        return self._change("POST", "/notify", {"tag": tag})

    def start_queue(self, name: str | None) -> Any:
        """Start a queue (`None`: all queues)."""
        return self._change("POST", "/queues/start", {} if name is None else {"names": [name]})

    def stop_queue(self, name: str | None) -> Any:
        """Stop a queue (`None`: all queues)."""
        return self._change("POST", "/queues/stop", {} if name is None else {"names": [name]})

    def remove_queue(self, name: str, *, force: bool = False) -> Any:
        """Remove a queue; `default` only with `force`."""
        return self._change("DELETE", f"/queues/{quoted(name)}" + ("?force=true" if force else ""))

    def account(self, what: dict[str, Any]) -> Any:
        """Account for the jobs that ended; returns how many those are, what changed, and how many rows there are."""
        return self._change("POST", "/accounting", what)

    def accounting(self, **query: object) -> Any:
        """List what was used: `rows`, a row a window; with `user` also the `karma` of each of its projects."""
        return self._get("/accounting", **query)

    def gantt(self, since: int, until: int) -> Any:
        """List the jobs and the states of resources between two instants."""
        return self._get("/gantt", since=since, until=until)

    def session(self, seconds: float = CONNECT_SECONDS, *, by_key: bool = False) -> tuple[_socket.socket, bytes]:
        """Open a connection for a session (`oarlock.node.wire.stream`), and what was received on it already.

        `seconds`: how long a server that is away is given to come back. `by_key`: the client will show the key of a
        job, and needs no token.
        """
        seconds = max(seconds, self._return_seconds(sent=False))
        return self._upgraded("/sessions", seconds, "Authorization: JobKey\r\n" if by_key else None)

    def _upgraded(self, path: str, seconds: float, who: str | None) -> tuple[_socket.socket, bytes]:
        """Open a connection that carries frames from now on, and what was received on it already.

        `who` is the header that says who asks; None: the token of the user.
        """
        if who is None:
            self._check_token()  # one that is missing is refused before anything is sent
        connection = self._connected(seconds, session=True)
        host, prefix = self._address()
        try:
            header = self._authorization("GET", path) if who is None else who
            request = (
                f"GET {prefix}{API}{path} HTTP/1.1\r\nHost: {host}\r\n{header}"
                "Connection: Upgrade\r\nUpgrade: oarlock-session\r\n\r\n"
            )
            connection.settimeout(self._patience())
            connection.sendall(request.encode("ascii"))
            status, rest = switched(connection)
        except RequestRefused:
            connection.close()
            raise
        except (ConnectionError, BrokenResponse, NotHttp, TimeoutError):
            connection.close()
            self._turn()
            raise RequestRefused(f"The server at {self.server} did not answer.", kind="NoAnswer", hint=_AGAIN) from None
        if status != 101:
            connection.close()
            _decode(status, rest, changing=False)
            raise RequestRefused(f"The server at {self.server} opens no sessions.", kind="ServerFailed", hint=_AGAIN)
        connection.settimeout(None)
        return connection, rest

    def _authorization(self, method: str, path: str) -> str:
        """Return the header that says who asks: with the user's token, else with what munge says for this request."""
        if self._addresses[self._at][1] is None:
            return ""
        token = user_token()
        if token is None:
            return f"Authorization: Munge {munge_credential(f'{method} {API}{path}')}\r\n"
        return f"Authorization: Bearer {token}\r\n"

    def _check_token(self) -> None:
        """Refuse to ask over the network without anything that says who asks."""
        if self._addresses[self._at][1] is not None:
            user_token()

    def _address(self) -> tuple[str, str]:
        """Return the host and the prefix of addresses."""
        url = self._addresses[self._at][1]
        return ("localhost", "") if url is None else (url[0], url[3])

    def _turn(self) -> None:
        """Try the next address from now on."""
        self._at = (self._at + 1) % len(self._addresses)

    def _patience(self) -> float:
        """Return how long one server is given for its answer."""
        return ANSWER_SECONDS if len(self._addresses) == 1 else TURN_SECONDS

    def _return_seconds(self, *, sent: bool) -> float:
        """Return how long a server that refuses connections is given to come back, or another one to take its place.

        `sent`: a change was sent already.
        """
        return RETURN_SECONDS if sent or len(self._addresses) > 1 else CONNECT_SECONDS

    def _get(self, path: str, **query: object) -> Any:
        words = "&".join(f"{name}={quoted(str(value))}" for name, value in query.items() if value is not None)
        return self._call("GET", f"{path}?{words}" if words else path, "", b"")

    def _download(self, path: str, **query: object) -> bytes:
        """Return the content of a file that a verb answers with."""
        words = "&".join(f"{name}={quoted(str(value))}" for name, value in query.items() if value is not None)
        status, content = self._call_raw("GET", f"{path}?{words}" if words else path, "", b"")
        if status >= 300:
            _decode(status, content, changing=False)
        return content

    def _change(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        sent = b"" if body is None else written(body).encode("ascii")
        return self._call(method, path, f"Request-Id: {request_id()}\r\n", sent)

    def _call(self, method: str, path: str, headers: str, body: bytes) -> Any:
        status, answer = self._call_raw(method, path, headers, body)
        return _decode(status, answer, changing=bool(headers))

    def _call_raw(self, method: str, path: str, headers: str, body: bytes) -> tuple[int, bytes]:
        self._check_token()  # one that is missing is refused before anything is sent
        about = f"{headers}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"

        def request() -> bytes:
            (host, prefix), token = self._address(), self._authorization(method, path)
            head = f"{method} {prefix}{API}{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{token}{about}"
            return head.encode("ascii") + body

        return self._send_until_answered(request, changing=bool(headers))

    def _send_until_answered(self, request: Callable[[], bytes], *, changing: bool) -> tuple[int, bytes]:
        """Send until there is an answer. The same request id each time: done at most once."""
        begun, attempt = time.monotonic(), 0
        deadline = begun + ANSWER_SECONDS
        while attempt < ATTEMPTS:
            try:
                connection = self._connected(self._return_seconds(sent=attempt > 0 and changing))
            except RequestRefused:
                if attempt == 0:
                    raise
                break  # it was sent before: that the server is down now does not say that nothing was done
            try:
                status, answer = _exchange(connection, request, self._patience())
                if not self._is_cut_off(status, answer) or time.monotonic() > begun + TURN_SECONDS:
                    return status, answer
                attempt = max(attempt, 1)
                time.sleep(_PAUSE)
            except TimeoutError:
                # A server that works on a long request is asked again as often as there is time.
                if time.monotonic() >= deadline or len(self._addresses) == 1:
                    break
                attempt = max(attempt, 1)
            except (ConnectionError, BrokenResponse):
                attempt += 1
            self._turn()
        sentence = f"The server at {self.server} took the request but did not answer."
        raise RequestRefused(sentence, kind="NoAnswer", hint=_UNKNOWN if changing else _AGAIN)

    def _is_cut_off(self, status: int, answer: bytes) -> bool:
        """Return whether a server refuses since it lost the database that another one of ours may have."""
        return len(self._addresses) > 1 and status == _UNAVAILABLE and any(kind in answer for kind in _CUT_OFF)

    def _connected(self, seconds: float, *, session: bool = False) -> Any:
        """Connect to a server that answers, within some seconds; for a `session` programs can wait for what comes."""
        deadline = time.monotonic() + seconds
        while True:
            problems = []
            for _ in self._addresses:
                outcome = self._try_connect(session)
                if not isinstance(outcome, OSError):
                    return outcome
                problems.append(outcome)
                self._turn()
            if not any(map(self._may_come_back, problems)) or time.monotonic() > deadline:
                raise self._down(problems[0])
            time.sleep(_PAUSE)

    def _try_connect(self, session: bool) -> Any:
        try:
            return self._connect(session)
        except OSError as why:
            return why

    def _may_come_back(self, why: OSError) -> bool:
        """Return whether a server that could not be reached is waited for."""
        # Where not even the folder of the socket exists there is nothing to wait for.
        nowhere = not any(url or os.path.isdir(os.path.dirname(where) or ".") for where, url in self._addresses)
        return isinstance(why, _MAY_COME_BACK) and not nowhere

    def _connect(self, session: bool) -> Any:
        where, url = self._addresses[self._at]
        if url is None:
            return open_connection(_socket.AF_UNIX, where)
        _, name, port, _ = url
        if where.startswith("https"):
            return open_session_tls(name, port) if session else open_tls(name, port)
        return open_any(name, port)

    def _down(self, why: OSError) -> RequestRefused:
        return RequestRefused(
            f"No server answers at {self.server} ({why.strerror or why}); nothing was changed.",
            kind="ServerDown",
            hint=f"Try again later, or name another one with ${VARIABLE}.",
        )


def request_id() -> str:
    """Make a random UUID (version 4) as 32 hexadecimal digits."""
    made = bytearray(os.urandom(16))
    # RFC 4122: the high bits of byte 6 are the version (4), those of byte 8 the variant (10).
    made[6] = made[6] & 0x0F | 0x40
    made[8] = made[8] & 0x3F | 0x80
    return made.hex()


def _send_all(connection: _socket.socket, head: bytes, file: Any) -> None:
    """Send a head and a file; a server that wants no more of it has said why, which is read next."""
    connection.settimeout(ANSWER_SECONDS)
    file.seek(0)
    try:
        connection.sendall(head)
        while data := file.read(1 << 18):
            connection.sendall(data)
    except ConnectionError:
        return


def _exchange(connection: _socket.socket, request: Callable[[], bytes], seconds: float) -> tuple[int, bytes]:
    try:
        connection.settimeout(seconds)
        connection.sendall(request())
        return received(connection)
    except NotHttp as beginning:
        sentence = f"What answers there is not an Oarlock server: it says `{beginning}`."
        raise RequestRefused(sentence, kind="ServerFailed", hint=f"Look at --server or ${VARIABLE}.") from None
    finally:
        connection.close()


def _decode(status: int, answer: bytes, *, changing: bool) -> Any:
    """Return the decoded response, or raise the refusal."""
    try:
        content = read(answer.decode()) if answer else {}
        if status < 300:
            return content
        raise RequestRefused(
            content["error"], kind=str(content["kind"]), hint=content.get("hint") or "", text=content.get("text")
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        sentence = f"The server failed: it answered {status} and no sentence."
        raise RequestRefused(sentence, kind="ServerFailed", hint=_UNKNOWN if changing else _AGAIN) from None
