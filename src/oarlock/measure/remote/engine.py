"""An engine that others keep and that understands PromQL: Prometheus, VictoriaMetrics, Mimir. One request at a time."""

import http.client
import json
import math
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from oarlock.measure.names import OURS
from oarlock.model.errors import Unavailable

ANSWER_SECONDS = 2.0
"""How long the engine may take: somebody waits for the answer."""

_MOST_BYTES = 64 << 20
_CHUNK = 1 << 16
_REFUSALS = frozenset({http.client.BAD_REQUEST, http.client.UNPROCESSABLE_ENTITY})


class EngineAway(Unavailable):
    """The engine that has the curve does not answer. Its address is for administrators only."""

    def __init__(self, url: str, why: str) -> None:
        host = urlsplit(url).hostname
        super().__init__(
            f"Prometheus has no answer: {'it cannot be reached' if host and host in why else why}.",
            hint="What was asked for is not kept here, and is read from there. Ask again in a moment.",
            for_administrators=f"Prometheus at {url} has no answer: {why}.",
        )


class QueryRefused(EngineAway):
    """The engine is there, and does not want this query: too many series, or it is no Prometheus."""


class PrometheusTarget(NamedTuple):
    """Where series are read: the address before `/api/v1`, how to be let in, and what is known about its series.

    `names` are the families of names that the series of jobs and nodes may have, the best first.
    """

    url: str
    token: str = ""
    tenant: str = ""
    cluster: str = ""
    period: float = 10.0
    names: tuple[str, ...] = (OURS,)


class EngineRow(NamedTuple):
    """One series of an answer, by instant (milliseconds)."""

    labels: Mapping[str, str]
    values: dict[int, float]


def ask_range(
    target: PrometheusTarget, query: str, *, since: float, until: float, step: float, seconds: float = ANSWER_SECONDS
) -> list[EngineRow]:
    """Return the series of a query between two instants; `EngineAway` if the engine is slow, away, or refuses."""
    form = {"query": query, "start": since, "end": until, "step": step, "timeout": f"{seconds:g}s"}
    return list(_rows(_ask(target, "query_range", form, seconds)))


def ask_instant(
    target: PrometheusTarget, query: str, *, at: float, seconds: float = ANSWER_SECONDS
) -> list[tuple[Mapping[str, str], float]]:
    """Return the labels and the value of each series of a query at an instant; `EngineAway` as for a range."""
    answer = _ask(target, "query", {"query": query, "time": at, "timeout": f"{seconds:g}s"}, seconds)
    values = [(row["metric"], float(row["value"][1])) for row in answer["data"]["result"]]
    return [(labels, value) for labels, value in values if math.isfinite(value)]


def quoted(text: str) -> str:
    """Write a text as a string of PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def literal(text: str) -> str:
    """Write a text as a regular expression of RE2 that matches it alone."""
    return re.sub(r"([^A-Za-z0-9_ /:@=,-])", r"\\\1", text)


def span(seconds: float) -> str:
    """Write a length of time as PromQL does."""
    return f"{math.ceil(seconds)}s"


def with_label(expression: str, label: str, text: str) -> str:
    """Add a label to all series of an expression."""
    escaped = text.replace("$", "$$")  # a `$` begins the number of a group there
    return f'label_replace({expression}, "{label}", {quoted(escaped)}, "", "")'


def node_of(instance: str) -> str:
    """Return the node of an `instance`, which may have a port."""
    return re.sub(r":\d+\Z", "", instance)


def _rows(answer: Mapping[str, Any]) -> Iterator[EngineRow]:
    for row in answer["data"]["result"]:
        values = {round(float(at) * 1000): float(text) for at, text in row["values"]}
        yield EngineRow(row["metric"], {at: value for at, value in values.items() if math.isfinite(value)})


def _ask(target: PrometheusTarget, path: str, form: Mapping[str, object], seconds: float) -> Mapping[str, Any]:
    deadline = time.monotonic() + seconds
    try:
        status, body = _exchange(target, path, urlencode(form).encode(), deadline, seconds)
        answer = json.loads(body)
    except TimeoutError:
        raise EngineAway(target.url, f"none within {seconds:g} s") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise EngineAway(target.url, str(error) or type(error).__name__) from error
    if status != http.client.OK or not isinstance(answer, dict) or answer.get("status") != "success":
        why = answer.get("error") if isinstance(answer, dict) else None
        kind = QueryRefused if status in _REFUSALS else EngineAway
        raise kind(target.url, f"status {status}" + (f", {why}" if why else ""))
    return answer


def _exchange(target: PrometheusTarget, path: str, body: bytes, deadline: float, seconds: float) -> tuple[int, bytes]:
    parts = urlsplit(target.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    headers |= {"Authorization": f"Bearer {target.token}"} if target.token else {}
    headers |= {"X-Scope-OrgID": target.tenant} if target.tenant else {}
    connection = kind(parts.hostname or "", parts.port, timeout=seconds)
    try:
        connection.request("POST", f"{parts.path.rstrip('/')}/api/v1/{path}", body, headers)
        response = connection.getresponse()
        content = bytearray()
        while chunk := response.read1(_CHUNK):
            content += chunk
            if time.monotonic() > deadline:
                raise TimeoutError
            if len(content) > _MOST_BYTES:
                raise ValueError(f"it is longer than {_MOST_BYTES >> 20} MiB")
        return response.status, bytes(content)
    finally:
        connection.close()
