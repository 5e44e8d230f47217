"""What jobs used, as `sacct` reports their steps: CPU time of all of a job, memory and traffic step by step."""

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

USAGE_FIELDS = ("JobIDRaw", "NCPUS", "ElapsedRaw", "TotalCPU", "AllocTRES", "TRESUsageInTot", "TRESUsageOutTot")

_TIME = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+(?:\.\d+)?)")
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)")
_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}


class AccountedUsage(Struct, frozen=True, kw_only=True):
    """What a job held and used. None is "not known", never 0: Slurm samples memory, and short steps are not sampled."""

    cpus: int = 0
    seconds: int = 0
    cpu_seconds: float | None = None
    memory_asked_bytes: int | None = None
    memory_most_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None


def read_usage(rows: Iterable[Mapping[str, str]]) -> dict[int, AccountedUsage]:
    """Return what jobs used, from their rows and those of their steps.

    Memory is that of the step that had most, summed over its tasks: steps of a job mostly follow each other.
    """
    jobs: dict[int, AccountedUsage] = {}
    steps: dict[int, list[tuple[Mapping[str, int], Mapping[str, int]]]] = {}
    for row in rows:
        number, _, step = row["JobIDRaw"].partition(".")
        if not number.isdecimal():
            continue
        if step:
            amounts = (_amounts(row["TRESUsageInTot"]), _amounts(row["TRESUsageOutTot"]))
            steps.setdefault(int(number), []).append(amounts)
        else:
            jobs[int(number)] = _job(row)
    return {number: _with_steps(job, steps.get(number, [])) for number, job in jobs.items()}


def _job(row: Mapping[str, str]) -> AccountedUsage:
    cpus, seconds = (int(row[name]) if row[name].isdecimal() else 0 for name in ("NCPUS", "ElapsedRaw"))
    return AccountedUsage(
        cpus=cpus, seconds=seconds, cpu_seconds=cpu_seconds(row["TotalCPU"]) or None,
        memory_asked_bytes=_amounts(row["AllocTRES"]).get("mem") or None,
    )  # fmt: skip


def _with_steps(
    job: AccountedUsage, steps: Iterable[tuple[Mapping[str, int], Mapping[str, int]]]
) -> AccountedUsage:  # fmt: skip
    taken, given = [step[0] for step in steps], [step[1] for step in steps]
    return AccountedUsage(
        cpus=job.cpus, seconds=job.seconds, cpu_seconds=job.cpu_seconds, memory_asked_bytes=job.memory_asked_bytes,
        memory_most_bytes=max((amounts.get("mem", 0) for amounts in taken), default=0) or None,
        read_bytes=sum(amounts.get("fs/disk", 0) for amounts in taken) or None,
        written_bytes=sum(amounts.get("fs/disk", 0) for amounts in given) or None,
    )  # fmt: skip


def cpu_seconds(text: str) -> float:
    """Read a CPU time (`1-02:03:04`, `01:02:03`, `00:14.588`); 0 for what is none."""
    match = _TIME.fullmatch(text)
    if match is None:
        return 0.0
    days, hours, minutes = (int(part or 0) for part in match.groups()[:3])
    return 60 * (60 * (24 * days + hours) + minutes) + float(match[4])


def _amounts(text: str) -> dict[str, int]:
    """Read amounts of trackable resources in bytes (`cpu=2,mem=1200M,fs/disk=4947`); times are left out."""
    pairs = (part.partition("=") for part in text.split(","))
    read = {name: _AMOUNT.fullmatch(value) for name, _, value in pairs}
    return {name: int(float(match[1]) * _FACTORS[match[2]]) for name, match in read.items() if match}
