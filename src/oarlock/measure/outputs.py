"""Where samples go beside the page of Prometheus: JSON lines, CSV, a push gateway. Any number, side by side."""

import csv
import io
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from oarlock.measure.batch import AGENT, NODE, MeasuredSubject, SampleBatch
from oarlock.measure.exposition import CONTENT_TYPE, MetricsPage
from oarlock.measure.naming import Naming, OutputSeries, pairs
from oarlock.model.errors import ConfigRefused
from oarlock.node.measure.discovery import Key

log = logging.getLogger(__name__)

STANDARD_OUTPUT = "-"
COLUMNS = (
    "metric", "timestamp", "value", "resource_kind", "resource_id", "consumer_kind", "consumer_id",
    "job_id", "user_id", "user", "account", "involved_jobs", "labels",
)  # fmt: skip
"""The first seven as Alumet writes them; then the owner, and its other labels."""


class SampleOutput(Protocol):
    """Takes every sample. What it cannot write it drops, and raises OSError to be counted."""

    name: str

    def take(self, batch: SampleBatch, naming: Naming) -> None:
        """Write one sample."""

    def close(self) -> None:
        """Close the output."""


class _PreviousSample:
    """The previous sample, for measurements of the growth since then."""

    def __init__(self) -> None:
        self._values: dict[Key, Mapping[str, float]] = {}
        self._at = 0.0
        self.is_known = False

    def measurements(
        self, batch: SampleBatch, naming: Naming
    ) -> Iterator[tuple[MeasuredSubject, list[tuple[OutputSeries, float]]]]:
        """Yield each subject with its measurements."""
        seconds = batch.at - self._at
        for subject in batch.subjects:
            before = self._values.get(subject.key, {})
            yield subject, list(naming.measurements(subject.scope, subject.values, before, seconds))

    def advance(self, batch: SampleBatch) -> None:
        """Make this sample the one before."""
        self._values, self._at = {subject.key: subject.values for subject in batch.subjects}, batch.at
        self.is_known = True


class FileAppender:
    """A text file that grows by whole samples: one that does not fit on the disk leaves no part of itself behind."""

    def __init__(self, path: str) -> None:
        self._fd: int | None = None
        self._start = ""
        if path == STANDARD_OUTPUT:
            return
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise ConfigRefused(f"{path} cannot be written: {error.strerror}.") from error
        self._start = "\n" if _ends_within_a_line(path) else ""

    @property
    def is_empty(self) -> bool:
        """Return whether the file is empty; standard output and pipes always are."""
        return self._fd is None or os.fstat(self._fd).st_size == 0

    def write(self, text: str) -> None:
        """Write a text of whole lines, all of it or nothing (OSError)."""
        if self._fd is None:
            sys.stdout.write(text)
            sys.stdout.flush()
            return
        size = os.fstat(self._fd).st_size
        data = memoryview(f"{self._start}{text}".encode())
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            with suppress(OSError):  # a pipe has no size
                os.ftruncate(self._fd, size)
            raise
        self._start = ""

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)


def _ends_within_a_line(path: str) -> bool:
    """Return whether a file ends with part of a line: its writer was killed meanwhile."""
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            return size > 0 and file.read(1) != b"\n"
    except OSError:
        return False


class JsonLinesOutput:
    """A line a subject: a job's with its owner, the node's with the jobs that were on it."""

    name = "json"

    def __init__(self, path: str) -> None:
        self._file = FileAppender(path)
        self._before = _PreviousSample()

    def take(self, batch: SampleBatch, naming: Naming) -> None:
        """Write a sample."""
        lines = [
            _line(batch, _owner_fields(subject), {output.key: value for output, value in measurements})
            for subject, measurements in self._before.measurements(batch, naming)
        ]
        lines.append(_line(batch, {"involved_jobs": batch.involved_jobs}, _of_the_node(batch, naming)))
        self._file.write("".join(lines))
        self._before.advance(batch)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _line(batch: SampleBatch, owner: Mapping[str, Any], measurements: Mapping[str, float]) -> str:
    line = {"timestamp": batch.at, "hostname": batch.host, **owner, "measurements": measurements}
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n"


class CsvOutput:
    """A row a measurement, in columns that never change."""

    name = "csv"

    def __init__(self, path: str) -> None:
        self._file = FileAppender(path)
        self._before = _PreviousSample()

    def take(self, batch: SampleBatch, naming: Naming) -> None:
        """Write a sample, with the head before the first."""
        text = io.StringIO()
        rows = csv.writer(text, delimiter=";", lineterminator="\n")
        if self._file.is_empty and not self._before.is_known:
            rows.writerow(COLUMNS)
        rows.writerows(self._rows(batch, naming))
        self._file.write(text.getvalue())
        self._before.advance(batch)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _rows(self, batch: SampleBatch, naming: Naming) -> Iterator[tuple[str | float, ...]]:
        at = datetime.fromtimestamp(batch.at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        for subject, measurements in self._before.measurements(batch, naming):
            owner = subject.owner
            job = (owner.job, owner.uid, owner.user, owner.account) if subject.scope == "job" else ("", "", "", "")
            for output, value in measurements:
                yield _row(output, at, value, ("cgroup", subject.path, *job, ""))
        jobs = json.dumps(batch.involved_jobs)
        for scope, values in ((NODE, batch.node), (AGENT, batch.agent)):
            for output, value in naming.measurements(scope, values, {}, 0):
                yield _row(output, at, value, ("local_machine", "", "", "", "", "", jobs))


def _row(output: OutputSeries, at: str, value: float, owner: tuple[str, ...]) -> tuple[str | float, ...]:
    own = ",".join(f"{label}={text}" for label, text in pairs(output.own))
    return (output.name.name, at, value, "local_machine", "", *owner, own)


def _owner_fields(subject: MeasuredSubject) -> dict[str, Any]:
    owner = subject.owner
    if subject.scope != "job":
        return labels_of_a_cgroup(subject)
    job = int(owner.job) if owner.job.isdigit() else owner.job
    user = {"user": owner.user, "user_id": int(owner.uid) if owner.uid.isdigit() else owner.uid}
    more = {"account": owner.account, "name": owner.name, "node": owner.node}
    return {"job_id": job, **user, "manager": owner.manager, **{word: text for word, text in more.items() if text}}


def labels_of_a_cgroup(subject: MeasuredSubject) -> dict[str, Any]:
    """Return the labels of a cgroup that belongs to no job."""
    return {"cgroup": "/".join(part for part in subject.key[1:] if part), "manager": subject.owner.manager}


def _of_the_node(batch: SampleBatch, naming: Naming) -> dict[str, float]:
    return {
        output.key: value
        for scope, values in ((NODE, batch.node), (AGENT, batch.agent))
        for output, value in naming.measurements(scope, values, {}, 0)
    }


TIMEOUT_SECONDS = 10
GROUP = "oarlock_agent"


class PushGateway:
    """Push the page to a Prometheus push gateway, for sites whose Prometheus cannot reach the nodes.

    It replaces this node's group with the latest page, in a thread: a slow gateway costs pages, never samples.

    The group is replaced whole, so that an ended job's series go; it is deleted when the agent ends.
    """

    def __init__(self, url: str, host: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigRefused(f"`{url}` is not the http address of a push gateway.", hint="Write http://host:9091.")
        self._https, self._address = parts.scheme == "https", (parts.hostname, parts.port)
        self._path = f"{parts.path.rstrip('/')}/metrics/job/{GROUP}/instance/{quote(host, safe='')}"
        self._page: MetricsPage | None = None
        self._wake, self._over = threading.Event(), False
        self.failures = 0
        self._thread = threading.Thread(target=self._run, name="push", daemon=True)
        self._thread.start()

    def offer(self, page: MetricsPage) -> None:
        """Queue this page; a newer one replaces it if it was not pushed yet."""
        self._page = page
        self._wake.set()

    def close(self) -> None:
        """Delete the group from the gateway and end the thread."""
        self._over = True
        self._wake.set()
        self._thread.join(TIMEOUT_SECONDS * 2)

    def _run(self) -> None:
        while not self._over:
            self._wake.wait()
            self._wake.clear()
            page, self._page = self._page, None
            if page and not self._over:
                self._try("PUT", b"".join(page.pieces))
        self._try("DELETE", b"")

    def _try(self, method: str, body: bytes) -> None:
        import http.client  # large, and few agents push

        try:
            self._send(method, body)
        except (OSError, http.client.HTTPException) as error:
            self.failures += 1
            if self.failures == 1:
                log.warning("the push gateway does not take our page: %s", error)

    def _send(self, method: str, body: bytes) -> None:
        import http.client

        kind = http.client.HTTPSConnection if self._https else http.client.HTTPConnection
        connection = kind(*self._address, timeout=TIMEOUT_SECONDS)
        try:
            connection.request(method, self._path, body, {"Content-Type": CONTENT_TYPE})
            response = connection.getresponse()
            answer = response.read(1000)
            if response.status >= http.client.BAD_REQUEST:
                raise OSError(f"{response.status} {answer.decode('utf-8', 'replace').strip()}")
        finally:
            connection.close()
