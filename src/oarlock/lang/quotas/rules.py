"""One rule of quotas: `"queue,project,type,user": [resources, jobs, resource-hours]`."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from oarlock.lang.limits import short
from oarlock.model.limits import BadQuotas, QuotaAmount, WrittenRule
from oarlock.model.snapshot import QuotaRule

_AMOUNT = re.compile(r"(?:(?P<number>-?\d{1,15}(?:\.\d{1,9})?)(?P<times>\s*\*\s*ALL)?|(?P<all>ALL))")
_NAME = re.compile(r"[^\s,*/]{1,255}|[*/]")
_FIELDS = "queue,project,type,user"
_NO_LIMIT = QuotaAmount(-1)


def read_set(name: str, given: Any) -> tuple[WrittenRule, ...]:
    """Read a set of rules."""
    if not isinstance(given, Mapping):
        raise BadQuotas(f"`{short(name)}` is not a set of rules.", hint=f'Write {{"{_FIELDS}": [16, -1, -1], …}}.')
    return tuple(rule(key, value) for key, value in given.items())


def rule(key: str, value: Any) -> WrittenRule:
    """Read one rule: whom it is for, and its limits."""
    who = [part.strip() for part in key.split(",")]
    if len(who) != 4 or not all(map(_NAME.fullmatch, who)):
        raise BadQuotas(
            f"`{short(key)}` does not say whom a quota is for.",
            hint=f"Write {_FIELDS}: a name each, * for all together, / for each by itself.",
        )
    if who[2] == "/":
        raise BadQuotas(f"`{short(key)}`: types cannot be counted each by itself.", hint="Write * or the type's name.")
    limits = value if isinstance(value, list) else [value, -1, -1]
    if len(limits) != 3:
        raise BadQuotas(
            f"The quota `{short(key)}` has {len(limits)} limits.",
            hint="It has three: resources, jobs and resource-hours at once; -1 is no limit.",
        )
    queue, project, job_type, user = who
    return WrittenRule(queue, project, job_type, user, *(_amount(key, limit) for limit in limits))


def _amount(key: str, given: Any) -> QuotaAmount:
    match = None if isinstance(given, bool) else _AMOUNT.fullmatch(str(given).strip())
    if match is None:
        raise BadQuotas(
            f"The quota `{short(key)}` has the limit `{short(str(given))}`, which is none.",
            hint="A limit is a number, ALL, or a number times ALL such as 0.5*ALL; -1 is no limit.",
        )
    number = float(match["number"] or 1)
    return _NO_LIMIT if number < 0 else QuotaAmount(number, of_all=bool(match["times"] or match["all"]))


def resolved(rules: Iterable[WrittenRule], everything: int) -> tuple[QuotaRule, ...]:
    """Return rules in numbers, for a cluster of so many resources; fractions of a resource are cut off."""
    return tuple(
        QuotaRule(
            rule.queue,
            rule.project,
            rule.job_type,
            rule.user,
            int(rule.resources.value(everything)),
            int(rule.jobs.value(everything)),
            -1 if rule.hours == _NO_LIMIT else int(rule.hours.value(everything) * 3600),
        )
        for rule in rules
    )
