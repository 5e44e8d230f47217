"""`oarlock lustre-proxy`: what Lustre's servers count by job, with the user and the account of each job.

lustre_exporter knows no more of a job than what clients wrote into their `jobid`: the number of a job, or a program and
a user (`cp.1000`). Prometheus scrapes the proxy in its place, and gets the same page with the labels `user`, `account`
and `fs` on the series of jobs.
"""

import http.client
import logging
import pwd
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from oarlock.measure.batch import JobFacts
from oarlock.measure.exposition import MetricsPage
from oarlock.model.errors import ConfigRefused

log = logging.getLogger(__name__)

UPSTREAM_SECONDS = 10.0
WAIT_SECONDS = 2.0
"""How long a scrape waits for the owners of jobs that were never seen; their series come with the next one."""

_MOST_BYTES = 256 << 20
_CHUNK = 1 << 20
_PAUSE = 0.05
_LINE = re.compile(r'(lustre_job_\w+)\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\}(.*)', re.DOTALL)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_TARGET = re.compile(r"(.+)-(?:OST|MDT)[0-9a-fA-F]+")
_OWN_LABELS = ("user", "account", "fs")


class FactsLookup(Protocol):
    """Looks up jobs without holding up who asks."""

    def facts(self, job: str) -> JobFacts | None:
        """Return what is known of a job; None until it was looked up."""
        ...

    def keep(self, jobs: Iterable[str]) -> None:
        """Forget all jobs but these."""
        ...


class UpstreamAway(Exception):
    """lustre_exporter has no answer."""


class JobOwnerLabels(NamedTuple):
    """Whose a `jobid` is."""

    user: str = ""
    account: str = ""


class LustreProxy:
    """Makes a page for each scrape."""

    def __init__(self, upstream: str, look_up: FactsLookup, *, cluster: str = "", wait: float = WAIT_SECONDS) -> None:
        if urlsplit(upstream).scheme not in {"http", "https"}:
            raise ConfigRefused(
                f"`{upstream[:80]}` is not the address of lustre_exporter.", hint="Write http://HOST:9169/metrics."
            )
        self._upstream, self._look_up = upstream, look_up
        self._cluster, self._wait = cluster, wait
        self._is_away = False

    def page(self) -> MetricsPage | None:
        """Return the page of this instant; None while lustre_exporter does not answer."""
        try:
            lines = fetch(self._upstream).splitlines(keepends=True)
        except UpstreamAway as away:
            if not self._is_away:
                log.warning("lustre_exporter does not answer: %s", away)
            self._is_away = True
            return None
        self._is_away = False
        owners = self._owners(lines)
        written = [line.encode() for line in labelled(lines, owners, cluster=self._cluster)]
        return MetricsPage(time.time(), written, len(written))

    def _owners(self, lines: Iterable[str]) -> dict[str, JobOwnerLabels]:
        """Return whose jobs are on a page; those that are not known within the time are left out."""
        jobs = {job for line in lines if (job := job_of(line)) is not None}
        numbers = {job for job in jobs if job.isdigit()}
        owners = {job: owner_by_name(job) for job in jobs - numbers}
        deadline = time.monotonic() + self._wait
        waiting = numbers
        while waiting:
            for job in waiting:
                facts = self._look_up.facts(job)
                if facts is not None:
                    owners[job] = JobOwnerLabels(facts.user, facts.account)
            waiting = waiting - owners.keys()
            if time.monotonic() >= deadline:
                break
            if waiting:
                time.sleep(_PAUSE)
        self._look_up.keep(numbers)
        return owners


def job_of(line: str) -> str | None:
    """Return the `jobid` of a series of a job; None for any other line."""
    match = _LINE.match(line)
    return None if match is None else dict(_LABEL.findall(match[2])).get("jobid")


def labelled(lines: Iterable[str], owners: Mapping[str, JobOwnerLabels], *, cluster: str = "") -> Iterator[str]:
    """Yield the lines of a page with the owners of jobs; series of jobs that are not among `owners` are left out."""
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            yield line
            continue
        labels = dict(_LABEL.findall(match[2]))
        owner = owners.get(labels.get("jobid", ""))
        if owner is None:
            continue
        target = _TARGET.fullmatch(labels.get("target", ""))
        more = {"user": owner.user, "account": owner.account, "fs": target[1] if target else "", "cluster": cluster}
        labels |= {name: text for name, text in more.items() if text and name not in labels}
        inside = ",".join(f'{name}="{text}"' for name, text in labels.items())
        yield f"{match[1]}{{{inside}}}{match[3]}"


def owner_by_name(job: str, uid_name: Callable[[int], str] | None = None) -> JobOwnerLabels:
    """Return the user of a `jobid` that is a program and a user (`cp.1000`, `cp.ada`): jobs have numbers."""
    user = job.rpartition(".")[2] if "." in job else ""
    if user.isdigit() and len(user) < 11:
        user = (uid_name or _name_of)(int(user))
    return JobOwnerLabels(user if re.fullmatch(r"[\w.@+-]{0,64}", user) else "")


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


def fetch(address: str, seconds: float = UPSTREAM_SECONDS) -> str:
    """Return the page of lustre_exporter; `UpstreamAway` with the reason if there is none."""
    parts = urlsplit(address)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    deadline = time.monotonic() + seconds
    try:
        connection = kind(parts.hostname or "", parts.port, timeout=seconds)
        try:
            connection.request("GET", parts.path or "/metrics")
            response = connection.getresponse()
            content = bytearray()
            while piece := response.read1(_CHUNK):
                content += piece
                if len(content) > _MOST_BYTES or time.monotonic() > deadline:
                    raise UpstreamAway("its page is too long, or too slow")
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise UpstreamAway(str(error) or type(error).__name__) from error
    if response.status != http.client.OK:
        raise UpstreamAway(f"status {response.status}")
    return content.decode("utf-8", "replace")
