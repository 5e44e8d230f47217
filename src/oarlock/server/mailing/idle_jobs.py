"""Acts on findings about GPUs that do nothing, where a site wants it: warns a job's owner twice, and ends the job."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from oarlock.insight.facts import Facts
from oarlock.insight.gather import JudgedFacts, gather
from oarlock.insight.idle_actions import ActingJob, IdleAction, due_action, is_excepted
from oarlock.insight.mails import user_address
from oarlock.insight.rules import FindingAction, FindingRule, rules_in_force
from oarlock.insight.wording import write_all
from oarlock.model.event import Event, EventType
from oarlock.server.core import ServerCore
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events
from oarlock.store.queries.usage import judged_jobs
from oarlock.store.queries.users import finding_records, mails
from oarlock.store.queries.users.mails import NewMail

log = logging.getLogger(__name__)

_MOST = 2000
_FRESH = 900  # seconds: GPUs of which nothing newer is known may have begun to work
_ACTS = "act."  # before the rule of such mails: they cannot be refused


class DueJob(NamedTuple):
    """A job with what is due for it."""

    judged: JudgedFacts
    action: IdleAction


class IdleJobActions:
    """Warns and ends jobs. What is due is looked up anew in the transaction that writes that it was done."""

    def __init__(self, core: ServerCore) -> None:
        self._core = core

    async def act_due(self) -> None:
        """Do what is due for all jobs that run."""
        rules = [rule for rule in self._rules() if rule.act is not FindingAction.NONE]
        if not rules:
            return
        now = int(self._core.clock.now())
        due = await self._core.read(partial(due_jobs, rules=rules, now=now, gpu_property=self._gpu_property))
        for job in due:
            if job.action.ends:
                await self._core.kill([job.judged.job.id], by=f"rule {job.action.rule.id}")
            await self._core.write(partial(self._note, due=job, now=now))
            log.info("acted on a finding", extra={"job": job.judged.job.id, "rule": job.action.rule.id,
                                                  "minutes": job.action.minutes})  # fmt: skip

    @property
    def _gpu_property(self) -> str:
        return self._core.config.job_gpu_property

    def _rules(self) -> Sequence[FindingRule]:
        return rules_in_force(self._core.config.findings_file).findings

    def _note(self, tx: Tx, *, due: DueJob, now: int) -> None:
        """Write the warning, the event and the mail together."""
        job, action = due.judged.job, due.action
        finding_records.put_warning(tx, job.id, action.rule.id, action.minutes, at=now)
        kind = EventType.IDLE_JOB_ENDED if action.ends else EventType.IDLE_JOB_WARNED
        sentence = _sentence(action)
        events.add(tx, [Event(kind, now, f"{action.rule.id}: {sentence}", job.id)])
        address = user_address(self._core.config, job.user)
        if address:
            subject = f"[OAR] Job {job.id} {'was ended' if action.ends else 'does not use its GPUs'}"
            text = _mail_text(due.judged, action)
            mails.add(tx, NewMail(now, job.user, _ACTS + action.rule.id, address, subject, text, job=job.id), now=now)


def due_jobs(tx: Tx, *, rules: Sequence[FindingRule], now: int, gpu_property: str = "") -> list[DueJob]:
    """Return the jobs for which something is due, each by the first rule that finds it."""
    ids = judged_jobs.running_with_gpus(tx, seen_since=now - _FRESH, most=_MOST)
    warned = finding_records.warnings_of_jobs(tx, ids)
    acting = judged_jobs.types_of(tx, ids)
    due = []
    for judged in gather(tx, ids, now=now, gpu_property=gpu_property):
        number = judged.job.id
        about = ActingJob(judged.job.user, judged.job.queue, acting.get(number, ()))
        for rule in rules:
            if is_excepted(rule, about):
                continue
            action = due_action(rule, judged.facts, warned.get((number, rule.id), {}), now=now)
            if action is not None:
                due.append(DueJob(judged, action))
                break
    return due


def _sentence(action: IdleAction) -> str:
    if action.ends:
        return f"ended: its GPUs did nothing for {action.minutes} minutes, and its owner was warned twice"
    if action.rule.act is FindingAction.DELETE:
        return f"its GPUs did nothing for {action.minutes} minutes; it is ended in {action.left} unless they work"
    return f"its GPUs did nothing for {action.minutes} minutes"


def _mail_text(judged: JudgedFacts, action: IdleAction) -> str:
    job, facts = judged.job, judged.facts
    texts = action.rule.texts["en"]
    written = _written(facts)
    name = f" ({job.name})" if job.name else ""
    lines = [
        f"Job {job.id}{name} in queue {job.queue}, on {', '.join(job.nodes)}:",
        "",
        texts.text.format_map(written),
        f"{_sentence(action)[:1].upper()}{_sentence(action)[1:]}.",
        texts.advice.format_map(written),
        "",
        f"oarlock report {job.id}   # what it used of what it asked for",
    ]
    if not action.ends:
        lines.append(f"oardel {job.id}           # if it is not needed any more")
    return "\n".join([*lines, ""])


def _written(facts: Facts) -> dict[str, str]:
    return write_all(facts)
