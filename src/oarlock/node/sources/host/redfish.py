"""Power of a machine from its management controller, by Redfish (HTTP and JSON). One session is kept and reused."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import ssl
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from oarlock.node.sources.files import Values
from oarlock.node.sources.probe import BackgroundSource, series

PERIOD_SECONDS = 60.0
_TIMEOUT_SECONDS = 10  # of one answer of the network
_READ_SECONDS = 30  # of all that is asked at once
_LARGEST = 1 << 20  # bytes of a document
_UNAUTHORISED, _CREATED = 401, 201
_SESSIONS = "/redfish/v1/SessionService/Sessions"
_METRICS = {
    "AverageConsumedWatts": "power_average_watts",
    "MinConsumedWatts": "power_minimum_watts",
    "MaxConsumedWatts": "power_maximum_watts",
}


class RedfishError(Exception):
    """A management controller that does not answer as Redfish does."""


def power(document: Mapping[str, Any]) -> Values:
    """Read a chassis' `Power` document: its members (supplies, sleds) are added up."""
    values: Values = {}
    for control in document.get("PowerControl", ()):
        _add(values, "power_watts", control.get("PowerConsumedWatts"))
        for word, name in _METRICS.items():
            _add(values, name, (control.get("PowerMetrics") or {}).get(word))
    return values


def environment(document: Mapping[str, Any]) -> Values:
    """Read a chassis' `EnvironmentMetrics`, which newer controllers have instead."""
    values: Values = {}
    _add(values, "power_watts", (document.get("PowerWatts") or {}).get("Reading"))
    return values


def _add(values: Values, name: str, value: Any) -> None:
    if isinstance(value, (int, float)):
        values[name] = values.get(name, 0) + value


class RedfishController:
    """A management controller. One session is opened; without one, each request uses basic authentication.

    Its certificate must be signed by an authority that this machine trusts or that `authority`, a file, names; or be
    the one with the SHA-256 sum `fingerprint`. With `verify` off any will do.
    """

    def __init__(
        self, url: str, user: str, password: str, *, verify: bool = True, authority: str = "", fingerprint: str = ""
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise RedfishError(f"{url!r} is not the http address of a management controller")
        self._connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=authority or None)
            if fingerprint or not verify:  # many controllers sign their certificate themselves
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self._connection = _PinnedConnection(parts.hostname, parts.port, context, fingerprint)
        else:
            self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_SECONDS)
        self._user, self._password = user, password
        self._headers: dict[str, str] = {}
        self._session = ""
        self._links: dict[str, list[tuple[str, str]]] = {}  # where power is told: kind and path, by chassis
        self._end = 0.0

    def __call__(self) -> Values:
        """Read every chassis."""
        return self.read()

    def read(self, chassis: str = "") -> Values:
        """Read one chassis, by its path, or every one."""
        self._end = time.monotonic() + _READ_SECONDS
        try:
            return self._read_all(chassis)
        except RedfishError:
            self._links = {}  # it may have changed
            raise

    def close(self) -> None:
        """End the session: controllers have few of them."""
        self._end = time.monotonic() + _TIMEOUT_SECONDS
        session, self._session = self._session, ""
        try:
            if session:
                self._request("DELETE", session)
        except (OSError, http.client.HTTPException, RedfishError):
            pass  # it ends by itself, later
        finally:
            self._connection.close()

    def _read_all(self, chassis: str) -> Values:
        values: Values = {}
        if chassis not in self._links:
            members = [chassis] if chassis else self._members("/redfish/v1/Chassis")
            self._links[chassis] = [link for member in members for link in self._find_power(member)]
        for member, path in self._links[chassis]:
            for name, value in _read_document(self._get(path)).items():
                values[series(name, meter="redfish", chassis=member.rstrip("/").rpartition("/")[2])] = value
        return values

    def _find_power(self, chassis: str) -> list[tuple[str, str]]:
        """Return where a chassis tells its power; nothing if it does not."""
        document = self._get(chassis)
        for link in ("Power", "EnvironmentMetrics"):
            path = document[link]["@odata.id"] if link in document else None
            if path and _read_document(self._get(path)):
                return [(chassis, path)]
        return []

    def _members(self, path: str) -> list[str]:
        return [member["@odata.id"] for member in self._get(path).get("Members", ())]

    def _get(self, path: str) -> Any:
        if not self._headers:
            self._log_in()
        status, body, _ = self._request("GET", path)
        if status == _UNAUTHORISED:  # the session ran out
            self._log_in()
            status, body, _ = self._request("GET", path)
        if status != http.client.OK:
            raise RedfishError(f"the management controller answers {status} to {path}")
        return json.loads(body)

    def _log_in(self) -> None:
        self._headers = {}
        credentials = json.dumps({"UserName": self._user, "Password": self._password})
        status, _, headers = self._request("POST", _SESSIONS, credentials)
        token = headers.get("X-Auth-Token")
        if status == _CREATED and token:
            self._headers = {"X-Auth-Token": token}
            self._session = urlsplit(headers.get("Location") or "").path
        else:
            pair = base64.b64encode(f"{self._user}:{self._password}".encode()).decode()
            self._headers = {"Authorization": f"Basic {pair}"}

    def _request(self, method: str, path: str, body: str | None = None) -> tuple[int, bytes, http.client.HTTPMessage]:
        is_used = self._connection.sock is not None
        try:
            return self._ask(method, path, body)
        except (ConnectionError, http.client.RemoteDisconnected):
            if not is_used:
                raise
            return self._ask(method, path, body)  # it closes connections that nobody used for a while

    def _ask(self, method: str, path: str, body: str | None) -> tuple[int, bytes, http.client.HTTPMessage]:
        headers = {"Content-Type": "application/json", **self._headers}
        try:
            self._connection.request(method, path, body, headers)
            response = self._connection.getresponse()
            return response.status, self._content(response), response.headers
        except (OSError, http.client.HTTPException, RedfishError):
            self._connection.close()  # the next request opens it again
            raise

    def _content(self, response: http.client.HTTPResponse) -> bytes:
        content = b""
        while piece := response.read1(1 << 16):
            content += piece
            if len(content) > _LARGEST or time.monotonic() > self._end:
                raise RedfishError("the management controller answers too much, or too slowly")
        return content + response.read()  # nothing more: only now the connection may be used again


def _read_document(document: Mapping[str, Any]) -> Values:
    return power(document) if "PowerControl" in document else environment(document)


class _PinnedConnection(http.client.HTTPSConnection):
    """A connection that may know the one certificate that it accepts."""

    def __init__(self, host: str, port: int | None, context: ssl.SSLContext, fingerprint: str) -> None:
        super().__init__(host, port, timeout=_TIMEOUT_SECONDS, context=context)
        self._fingerprint = fingerprint.lower().replace(":", "")

    def connect(self) -> None:
        """Connect, and compare the certificate before anything is sent."""
        super().connect()
        if self._fingerprint:
            certificate = self.sock.getpeercert(binary_form=True) or b""
            if hashlib.sha256(certificate).hexdigest() != self._fingerprint:
                self.close()
                raise RedfishError("the certificate of the management controller is not the one that is named")


def source(controller: RedfishController, period: float = PERIOD_SECONDS) -> BackgroundSource:
    """Measure with this controller, every `period` seconds."""
    return BackgroundSource("redfish", controller, period)
