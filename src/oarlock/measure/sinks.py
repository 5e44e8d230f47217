"""Where samples go beside the page of Prometheus: JSON lines, CSV, a push gateway. Any number, side by side."""

import csv
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TextIO

from oarlock.measure.batch import AGENT, NODE, Batch, Subject
from oarlock.measure.naming import Naming, Output, pairs
from oarlock.model.errors import ConfigRefused
from oarlock.node.discovery import Key

log = logging.getLogger(__name__)

STANDARD_OUTPUT = "-"
COLUMNS = (
    "metric", "timestamp", "value", "resource_kind", "resource_id", "consumer_kind", "consumer_id",
    "job_id", "user_id", "user", "account", "involved_jobs", "labels",
)  # fmt: skip
"""The first seven as Alumet writes them; then whose measurement it is, and the labels of its own."""


class Sink(Protocol):
    """Takes every sample. What it cannot write it drops, and raises OSError to be counted."""

    name: str

    def take(self, batch: Batch, naming: Naming) -> None:
        """Write one sample."""

    def close(self) -> None:
        """Write what is left, and let go."""


class _Before:
    """The sample before, for measurements that say what was added since."""

    def __init__(self) -> None:
        self._values: dict[Key, Mapping[str, float]] = {}
        self._at = 0.0

    def measurements(self, batch: Batch, naming: Naming) -> Iterator[tuple[Subject, list[tuple[Output, float]]]]:
        """Give each subject's measurements."""
        seconds = batch.at - self._at
        for subject in batch.subjects:
            before = self._values.get(subject.key, {})
            yield subject, list(naming.measurements(subject.scope, subject.values, before, seconds))

    def advance(self, batch: Batch) -> None:
        """Make this sample the one before."""
        self._values, self._at = {subject.key: subject.values for subject in batch.subjects}, batch.at


class JsonLines:
    """A line a subject: a job's with its owner, the node's with the jobs that were on it."""

    name = "json"

    def __init__(self, path: str) -> None:
        self._file = _opened(path)
        self._before = _Before()

    def take(self, batch: Batch, naming: Naming) -> None:
        """Write a sample."""
        for subject, told in self._before.measurements(batch, naming):
            self._write(batch, _whose(subject), {output.key: value for output, value in told})
        self._before.advance(batch)
        self._write(batch, {"involved_jobs": batch.involved_jobs}, _of_the_node(batch, naming))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        _close(self._file)

    def _write(self, batch: Batch, whose: Mapping[str, Any], told: Mapping[str, float]) -> None:
        line = {"timestamp": batch.at, "hostname": batch.host, **whose, "measurements": told}
        self._file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


class Csv:
    """A row a measurement, in columns that never change."""

    name = "csv"

    def __init__(self, path: str) -> None:
        self._file = _opened(path)
        self._rows = csv.writer(self._file, delimiter=";", lineterminator="\n")
        if self._file is sys.stdout or self._file.tell() == 0:
            self._rows.writerow(COLUMNS)
        self._before = _Before()

    def take(self, batch: Batch, naming: Naming) -> None:
        """Write a sample."""
        at = datetime.fromtimestamp(batch.at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        for subject, told in self._before.measurements(batch, naming):
            owner = subject.owner
            job = (owner.job, owner.uid, owner.user, owner.account) if subject.scope == "job" else ("", "", "", "")
            for output, value in told:
                self._row(output, at, value, ("cgroup", "/".join(subject.key), *job, ""))
        self._before.advance(batch)
        jobs = json.dumps(batch.involved_jobs)
        for scope, values in ((NODE, batch.node), (AGENT, batch.agent)):
            for output, value in naming.measurements(scope, values, {}, 0):
                self._row(output, at, value, ("local_machine", "", "", "", "", "", jobs))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        _close(self._file)

    def _row(self, output: Output, at: str, value: float, whose: tuple[str, ...]) -> None:
        own = ",".join(f"{label}={text}" for label, text in pairs(output.own))
        self._rows.writerow((output.name.name, at, value, "local_machine", "", *whose, own))


def _whose(subject: Subject) -> dict[str, Any]:
    owner = subject.owner
    if subject.scope != "job":
        return labels_of_a_cgroup(subject)
    job = int(owner.job) if owner.job.isdigit() else owner.job
    told = {"user": owner.user, "user_id": int(owner.uid) if owner.uid.isdigit() else owner.uid}
    more = {"account": owner.account, "name": owner.name, "node": owner.node}
    return {"job_id": job, **told, "manager": owner.manager, **{word: text for word, text in more.items() if text}}


def labels_of_a_cgroup(subject: Subject) -> dict[str, Any]:
    """Say which cgroup it is that belongs to no job."""
    return {"cgroup": "/".join(part for part in subject.key[1:] if part), "manager": subject.owner.manager}


def _of_the_node(batch: Batch, naming: Naming) -> dict[str, float]:
    return {
        output.key: value
        for scope, values in ((NODE, batch.node), (AGENT, batch.agent))
        for output, value in naming.measurements(scope, values, {}, 0)
    }


def _opened(path: str) -> TextIO:
    if path == STANDARD_OUTPUT:
        return sys.stdout
    try:
        return Path(path).open("a", encoding="utf-8")
    except OSError as error:
        raise ConfigRefused(f"{path} cannot be written: {error.strerror}.") from error


def _close(file: TextIO) -> None:
    file.flush()
    if file is not sys.stdout:
        file.close()
