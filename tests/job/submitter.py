"""A small cluster that takes submissions: what a command sends goes through all steps of a submission."""

import argparse
import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oarlock.config import Config
from oarlock.job.admission import admit, submit
from oarlock.job.admission.feasibility import ClusterResourcesCache
from oarlock.job.admission.parse import allow
from oarlock.job.admission.payload import from_fields
from oarlock.job.admission.rules import RuleSetCache
from oarlock.lang.rules import RuleAcceptance
from oarlock.model.job import Job
from oarlock.model.submission import Submission
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties, resources

NOW = 1_794_766_962  # 2026-11-15, when the recorded commands were run


def add_cluster(tx: Tx, *, nodes: int = 4, cores: int = 8) -> list[int]:
    """Add nodes like those of the recorded OAR: half of them epyc with much memory."""
    for name, kind in {"host": str, "core": int, "mem": int, "cputype": str}.items():
        properties.add(tx, name, kind)
    rows = [
        {
            "network_address": f"node{node + 1}",
            "host": f"node{node + 1}",
            "cpu": node * 2 + core // (cores // 2 or 1),
            "core": node * cores + core,
            "cpuset": core,
            "mem": 64 if node % 2 else 16,
            "cputype": "epyc" if node % 2 else "xeon",
        }
        for node in range(nodes)
        for core in range(cores)
    ]
    return resources.add(tx, rows, at=NOW)


@dataclass
class Submitter:
    """Takes submissions as the server does."""

    tx: Tx
    config: Config = field(default_factory=Config)
    directory: Path | None = None
    run: admit.RunPythonRule | None = None
    user: str = "alice"
    uid: int = 1001
    groups: tuple[str, ...] = ("users",)
    now: int = NOW

    def __post_init__(self) -> None:
        self.existing = ClusterResourcesCache(self.config.scheduler_resource_order)
        self.rules = RuleSetCache(self.directory)
        self.looks = itertools.count()

    def _asked(self, body: dict[str, Any]) -> Submission:
        allow(self.user, self.uid, self.config)
        return submit.read(
            from_fields(body), user=self.user, uid=self.uid, groups=self.groups, config=self.config, now=self.now
        )

    def admit(self, **body: Any) -> RuleAcceptance:
        """Read a submission and let the rules look at it."""
        asked = self._asked(body)
        book = self.rules.now(self.tx, now=next(self.looks))
        known = admit.context(self.tx, asked, book, self.existing.now(self.tx), self.config)
        return asyncio.run(admit.admit(book, asked, known, config=self.config, now=self.now, run=self.run))

    def counted(self, **body: Any) -> submit.AdmittedSubmission:
        """Let the rules look at a submission that is stored later."""
        asked = self._asked(body)
        return self._counted(asked)

    def _counted(self, asked: Submission) -> submit.AdmittedSubmission:
        book = self.rules.now(self.tx, now=next(self.looks))
        known = admit.context(self.tx, asked, book, self.existing.now(self.tx), self.config)
        admitted = asyncio.run(admit.admit(book, asked, known, config=self.config, now=self.now, run=self.run))
        return submit.AdmittedSubmission(admitted, counted=admit.counted(book, asked, known))

    def again(self, job_id: int, *, request_id: str | None = None, now: int = NOW) -> list[Job]:
        """Submit an ended job again."""
        asked = self._counted(submit.resubmission(self.tx, job_id, user=self.user, uid=self.uid, groups=self.groups))
        cluster = self.existing.now(self.tx)
        return submit.submit(
            self.tx, asked.admitted, cluster=cluster, config=self.config, now=now, request_id=request_id
        )

    def submit(self, *, request_id: str | None = None, **body: Any) -> list[Job]:
        admitted = self.admit(**{"command": "true", **body})
        return submit.submit(
            self.tx,
            admitted,
            cluster=self.existing.now(self.tx),
            config=self.config,
            now=self.now,
            request_id=request_id,
        )

    def typed(self, words: Sequence[str]) -> tuple[list[Job], tuple[str, ...]]:
        """Submit what somebody typed; give the jobs and what the rules said."""
        admitted = self.admit(**body_of(words))
        added = submit.submit(self.tx, admitted, cluster=self.existing.now(self.tx), config=self.config, now=self.now)
        return added, admitted.messages


def body_of(words: Sequence[str]) -> dict[str, Any]:
    """Turn the words behind `oarsub` into what a command sends."""
    options = argparse.ArgumentParser(add_help=False)
    for field_, names in {
        "resources": ("-l",), "types": ("-t",), "after": ("-a",),
    }.items():  # fmt: skip
        options.add_argument(*names, dest=field_, action="append", default=[], type=int if field_ == "after" else str)
    for field_, names in {
        "queue": ("-q",), "properties": ("-p",), "reservation": ("-r",), "directory": ("-d",), "name": ("-n",),
        "project": ("--project",), "notify": ("--notify",), "stdout": ("-O",), "stderr": ("-E",),
        "checkpoint": ("--checkpoint",), "signal": ("--signal",),
    }.items():  # fmt: skip
        options.add_argument(*names, dest=field_)
    for field_, names in {"interactive": ("-I",), "hold": ("--hold",), "use_key": ("-k",)}.items():
        options.add_argument(*names, dest=field_, action="store_true")
    options.add_argument("--array", type=int)
    options.add_argument("-e")
    options.add_argument("-J", action="store_true")
    options.add_argument("-X", action="store_true")
    options.add_argument("-Y", action="store_true")
    options.add_argument("command", nargs="*")
    asked = vars(options.parse_args(list(words)))
    for unsent in ("e", "J", "X", "Y"):
        del asked[unsent]
    if asked["array"] is not None:
        asked["array"] = [""] * asked["array"]
    asked["command"] = " ".join(asked["command"]) or None
    for number in ("checkpoint", "signal"):
        if (text := asked[number]) is not None and text.isdigit():
            asked[number] = int(text)
    return {key: value for key, value in asked.items() if value is not None}
