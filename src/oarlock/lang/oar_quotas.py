"""Quotas as OAR 2 writes them: a Perl file whose lines each set one limit. Nothing in it is run."""

import re
from typing import NamedTuple

from oarlock.model.snapshot import QuotaRule

_KEY = r"->\{\s*['\"]?([^'\"{}]+?)['\"]?\s*\}"
_LINE = re.compile(r"\$Gantt_quotas" + _KEY * 4 + r"\s*=\s*\[?([^\];]*)\]?\s*;")
_NO_LIMIT = -1
_HOUR = 3600


class OarQuotas(NamedTuple):
    """The rules of a file, and its lines that are something else."""

    rules: tuple[QuotaRule, ...]
    strange: tuple[str, ...]


def parse_quotas(text: str) -> OarQuotas:
    """Parse a file of `oar_sched_gantt_with_timesharing_and_fairsharing_and_quotas`."""
    rules, strange = [], []
    for line in text.splitlines():
        written = line.partition("#")[0].strip()
        if not written:
            continue
        rule = _rule(written)
        if rule is None:
            strange.append(written)
        else:
            rules.append(rule)
    return OarQuotas(tuple(rules), tuple(strange))


def _rule(line: str) -> QuotaRule | None:
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    try:
        limits = [float(part) for part in match[5].split(",")]
    except ValueError:
        return None
    if not 1 <= len(limits) <= 3:
        return None
    resources, jobs, hours = limits + [_NO_LIMIT] * (3 - len(limits))
    seconds = _NO_LIMIT if hours < 0 else round(hours * _HOUR)
    return QuotaRule(match[1], match[2], match[3], match[4], int(resources), int(jobs), seconds)
