"""Power of the node from its management controller, by Redfish (HTTP and JSON). One session is kept and reused."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from oarlock.node.sources.files import Values
from oarlock.node.sources.metrics import series
from oarlock.node.sources.probe import BackgroundSource

PERIOD_SECONDS = 60.0
_TIMEOUT_SECONDS = 20
_UNAUTHORISED, _CREATED = 401, 201
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
    """A management controller. One session is opened; without one, each request uses basic authentication."""

    def __init__(self, url: str, user: str, password: str, *, verify: bool = True) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise RedfishError(f"{url!r} is not the http address of a management controller")
        context = ssl.create_default_context()
        if not verify:  # many controllers sign their certificate themselves
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._connection: http.client.HTTPConnection
        if parts.scheme == "https":
            self._connection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=_TIMEOUT_SECONDS, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_SECONDS)
        self._user, self._password = user, password
        self._headers: dict[str, str] = {}

    def __call__(self) -> Values:
        """Read every chassis."""
        values: Values = {}
        for chassis in self._members("/redfish/v1/Chassis"):
            document = self._get(chassis)
            for name, value in self._chassis(document).items():
                values[series(name, meter="redfish", chassis=chassis.rstrip("/").rpartition("/")[2])] = value
        return values

    def _chassis(self, document: Mapping[str, Any]) -> Values:
        for link, read in (("Power", power), ("EnvironmentMetrics", environment)):
            values = read(self._get(document[link]["@odata.id"])) if link in document else {}
            if values:
                return values
        return {}

    def _members(self, path: str) -> Iterable[str]:
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
        status, _, headers = self._request("POST", "/redfish/v1/SessionService/Sessions", credentials)
        token = headers.get("X-Auth-Token")
        if status == _CREATED and token:
            self._headers = {"X-Auth-Token": token}
        else:
            pair = base64.b64encode(f"{self._user}:{self._password}".encode()).decode()
            self._headers = {"Authorization": f"Basic {pair}"}

    def _request(self, method: str, path: str, body: str | None = None) -> tuple[int, bytes, http.client.HTTPMessage]:
        headers = {"Content-Type": "application/json", **self._headers}
        try:
            self._connection.request(method, path, body, headers)
            response = self._connection.getresponse()
            return response.status, response.read(), response.headers
        except (OSError, http.client.HTTPException):
            self._connection.close()  # the next request opens it again
            raise


def source(controller: RedfishController, period: float = PERIOD_SECONDS) -> BackgroundSource:
    """Measure with this controller, every `period` seconds."""
    return BackgroundSource("redfish", controller, period)
