"""What OAR's own tests say of matching, slots, scheduling, fair sharing and quotas; none contradicts the manual."""

import pytest

from oarlock.lang import quotas
from oarlock.model.job import JobState, Reservation
from oarlock.model.quota import BadQuotas
from oarlock.model.request import Group, Level
from oarlock.model.snapshot import (
    Choice,
    Dependency,
    Placed,
    Queue,
    QuotaRule,
    QuotaSpan,
    ResourceTable,
    Shape,
    Snapshot,
    Usage,
    Waiting,
)
from oarlock.plan.chart import FOREVER
from oarlock.plan.fit import Fitter
from oarlock.plan.karma import by_karma
from oarlock.plan.planner import make_plan
from oarlock.plan.settings import Fairness, PlanSettings
from oarlock.plan.timeline import Timeline, slots
from tests.lang.cases import oar_cases
from tests.plan.drawing import FIFO, NOW, asks, laid, planned, reserved, reserves, runs, table


def numbers(pairs) -> list[int]:
    """Read a set of resources: inclusive pairs."""
    return [number for low, high in pairs for number in range(low, high + 1)]


def blocks_table(levels: dict[str, list], highest: int) -> ResourceTable:
    """Make a table in which each level's blocks have a value each."""
    rows = [{"network_address": None} for _ in range(highest)]
    for name, blocks in levels.items():
        for at, block in enumerate(blocks):
            for number in numbers(block):
                rows[number - 1] |= {name: at}
    return table(*rows)


def chosen(levels: dict[str, list], counts: list[int], available) -> list[int]:
    """Give what a request for so many of each level takes of what is available."""
    highest = max(numbers(block)[-1] for blocks in levels.values() for block in blocks)
    layout = laid(blocks_table(levels, highest))
    asked = Shape((Group(tuple(Level(name, count) for name, count in zip(levels, counts, strict=True))),))
    return sorted(layout.ids_of(Fitter(layout).compile(asked).take(layout.bits_of(numbers(available)))))


def block_select(given, expected):
    assert chosen({"block": given["blocks"]}, [given["count"]], given["available"]) == numbers(expected["selected"])


def block_filter(given, expected):
    """Give the blocks with a free resource: BEST of them, one resource of each."""
    levels = {"block": given["blocks"]}
    highest = max(numbers(block)[-1] for block in given["blocks"])
    layout = laid(blocks_table(levels, highest))
    asked = Shape((Group((Level("block", -2), Level("resource_id", 1))),))
    taken = layout.ids_of(Fitter(layout).compile(asked).take(layout.bits_of(numbers(given["available"]))))
    assert [block for block in given["blocks"] if set(numbers(block)) & set(taken)] == expected["kept"]


def hierarchy_match(given, expected):
    levels = {f"level{at}": blocks for at, blocks in enumerate(given["levels"])}
    assert chosen(levels, given["counts"], given["available"]) == numbers(expected["selected"])


def timeline_of(drawn) -> Timeline:
    """Make a timeline of slots with inclusive ends; after the last one nothing is free."""
    made = Timeline(drawn[0][0], bits(drawn[0][2] if len(drawn[0]) > 2 else []))
    made.times = [begin for begin, *_ in drawn] + [drawn[-1][1] + 1]
    made.free = [bits(free[0]) if free else 0 for _, _, *free in drawn] + [0]
    made.count = [units.bit_count() for units in made.free]
    return made


def bits(pairs) -> int:
    return sum(1 << number for number in numbers(pairs))


def gantt_update(given, expected):
    timeline = timeline_of(given["slots"])
    for job in given["jobs"]:
        timeline.cover(job["start"], job["start"] + job["duration"], bits(job["resources"]))
    found = [(begin, end - 1, free) for begin, end, free in slots(timeline) if end is not None]
    assert found == [(begin, end, bits(free)) for begin, end, free in expected["slots"]]


def slot_lookup(given, expected):
    timeline = timeline_of(given["slots"])
    found = [at for at, (begin, end, _) in enumerate(slots(timeline), 1) if end and begin <= given["time"] < end]
    assert (found or [None]) == [expected["slot_number"]]


def slot_intersection(given, expected):
    timeline = timeline_of(given["slots"])
    assert timeline.during(timeline.times[0], timeline.times[-1]) == bits(expected["common"])


def schedule(given, expected, **more):
    """Plan at the begin of the window; walltimes include the security time, and dependencies add none."""
    shapes: list[Shape] = []
    rooms = any("container" in job.get("types", {}) for job in (*given["waiting"], *given["already_scheduled"]))
    security_time = given["security_time"] if rooms else 0  # what is inside of a container ends before it
    waiting = tuple(_waiting(job, shapes, security_time) for job in given["waiting"])
    now = given["window"][0]
    asked = Snapshot(
        resources=blocks_table(given["hierarchy"], numbers(given["resources"])[-1]),
        queues=(Queue("default", 1, FIFO),),
        shapes=tuple(shapes),
        waiting=waiting,
        placed=tuple(_placed(job, now, security_time) for job in given["already_scheduled"]),
        **more,
    )
    plan = make_plan(asked, now=now, settings=PlanSettings(security_time=security_time))
    for job, outcome in expected.items():
        place = plan.placements.get(int(job))
        if "start" in outcome:
            assert (place and place.start) == outcome["start"]
        if "resources" in outcome:
            assert list(plan.resources(int(job))) == numbers(outcome["resources"])


def _waiting(job, shapes: list[Shape], security_time: int) -> Waiting:
    choices = []
    for at, moldable in enumerate(job["moldables"]):
        groups = tuple(
            Group(tuple(Level(name, count) for name, count in group["levels"])) for group in moldable["groups"]
        )
        shapes.append(Shape(groups))
        choices.append(Choice(at + 1, len(shapes) - 1, moldable["walltime"] - security_time))
    after = tuple(
        Dependency(other["id"], JobState(other["state"]), other["exit_code"]) for other in job.get("depends_on", [])
    )
    return Waiting(job_id=job["id"], choices=tuple(choices), after=after, **_who(job))


def _placed(job, now: int, security_time: int) -> Placed:
    begun = job["start"] <= now
    return Placed(
        job_id=job["id"],
        moldable_id=job["id"],
        state=JobState.RUNNING if begun else JobState.WAITING,
        reservation=Reservation.NONE if begun else Reservation.SCHEDULED,
        start=job["start"],
        stop=job["start"] + job["duration"] - security_time,
        resources=tuple(numbers(job["resources"])),
        **_who(job),
    )


def _who(job):
    types = {**job.get("types", {}), **{word: job[word] for word in ("placeholder", "allowed") if word in job}}
    return {
        "user": job.get("user", "ada"),
        "queue": job.get("queue", "default"),
        "project": job.get("project", "default"),
        "types": tuple(f"{word}={value}" if value else word for word, value in types.items()),
    }


def schedule_quota(given, expected):
    book = quotas.read({"quotas": given["quotas"], "job_types": given["quota_job_types"]})
    schedule(given, expected, quotas=quotas.resolved(book.sets["quotas"], numbers(given["resources"])[-1]))


def schedule_calendar_quota(given, expected):
    book, found = calendar(given["calendar"], days=7)
    rules = {name: quotas.resolved(one, 32) for name, one in book.sets.items()}
    spans = [QuotaSpan(one.begin, one.end, rules[one.name]) for one in found]
    after = QuotaSpan(7 * 86400, FOREVER, (QuotaRule("*", "*", "*", "*", jobs=0),))  # nothing begins behind the window
    schedule(given, expected, quota_spans=(*spans, after))


def calendar(written, *, days: int):
    """Read a calendar whose day 0 is a Monday; one-shot periods are given in seconds from then on."""
    dated = [[date(begin), date(end), name] for begin, end, name in written.get("oneshot", [])]
    book = quotas.read({**written, "oneshot": dated})
    return book, quotas.spans(
        book,
        weekday=0,
        days=days,
        on_day=lambda day, second: day * 86400 + second,
        on_date=lambda parts: (parts[2] - 1) * 86400 + parts[3] * 3600 + parts[4] * 60,
    )


def date(seconds: int) -> str:
    return f"2026-06-{1 + seconds // 86400:02} {seconds % 86400 // 3600:02}:{seconds % 3600 // 60:02}"


def quota_rules(given, expected):
    book = quotas.read({"quotas": given["rules"]})
    [*found] = quotas.resolved(book.sets["quotas"], given["all"])
    assert {
        f"{one.queue},{one.project},{one.job_type},{one.user}": [one.resources, one.jobs, one.resource_seconds]
        for one in found
    } == expected["rules"]


def quota_calendar_check(given, expected):
    sets = {name: {} for _, name in given["periodical"]}
    quotas.read({**given, **sets})
    with pytest.raises(BadQuotas, match="No period speaks of"):
        quotas.read({**given, **sets, "periodical": given["periodical"][1:]})
    assert expected == {"covers_week": True}


def quota_calendar_at(given, expected):
    at = given["seconds_after_monday_0h"]
    [span] = [one for one in calendar(given["calendar"], days=14)[1] if one.begin <= at < one.end]
    assert {"rules": span.name, "seconds_left": span.end - at} == expected


def quota_calendar_split(given, expected):
    begin, last = given["window"]
    inside = [one for one in calendar(given["calendar"], days=21)[1] if one.begin <= last]
    pieces = [[min(one.end, last + 1) - max(one.begin, begin), one.name] for one in inside]
    assert pieces == expected["pieces"]


def instant(text: str) -> int:
    """Read `now-350`, `now+10` or `T+60`; T is two hours from now."""
    base, sign, seconds = text.partition("-") if "-" in text else text.partition("+")
    shift = int(seconds.replace("h", "")) * (3600 if "h" in seconds else 1) if sign else 0
    return (NOW if base == "now" else NOW + 7200) + (-shift if sign == "-" else shift)


def meta_schedule(given, expected):
    absent = given.get("absent_resources", 0)
    rows = [
        {"network_address": f"n{at}", "core": at, "state": "Absent" if at < absent else "Alive",
         "next_state": given.get("resource_1_next_state", "UnChanged") if at == 0 else "UnChanged"}
        for at in range(given["resources"])
    ]  # fmt: skip
    notice = given.get("SCHEDULER_BESTEFFORT_KILL_DURATION_BEFORE_RESERVATION", 0)
    rules = quotas.read({"quotas": given.get("quotas", {})}).sets["quotas"]
    plan = planned(table(*rows), *(_job(job) for job in given["jobs"]), security_time=given["security_time"],
                   besteffort_notice=notice, given={"quotas": quotas.resolved(rules, len(rows))})  # fmt: skip
    told = {"accepted": sorted(plan.accept), "killed": sorted(plan.kill)}
    for job in given["jobs"]:
        starts = job["id"] in plan.start
        told[str(job["id"])] = {"state": "toLaunch" if starts else "Error" if job["id"] in plan.refuse else "Waiting"}
        if "accepted_reservation_at" in job and not starts:
            told[str(job["id"])]["reservation"] = str(Reservation.SCHEDULED)
    assert {key: told[key] for key in expected} == expected


def _job(job):
    needed = int(job.get("request", "=0").partition("=")[2])
    if "state" in job:
        ids = range(1, job["assigned"] + 1)
        return runs(job["id"], ids, NOW + 9000, types=tuple(job["types"]), queue="besteffort")
    if "accepted_reservation_at" in job:
        start = instant(job["accepted_reservation_at"])
        return reserved(job["id"], range(1, needed + 1), start, start + job["walltime"])
    if "reservation_at" in job:
        return reserves(job["id"], job["request"], instant(job["reservation_at"]), job["walltime"])
    return asks(job["id"], job["request"], walltime=job["walltime"])


def fairshare_order(given, expected):
    used, asked = given["used"], given["asked"]
    usage = Usage(sum(used.values()), sum(asked.values()), used, asked)
    jobs = [Waiting(job_id=at, user=user, queue="default", choices=()) for at, user in enumerate(reversed(used))]
    assert [job.user for job in by_karma(jobs, usage, Fairness())] == expected["order"]


CHECKS = {
    check.__name__: check
    for check in (
        block_select, block_filter, hierarchy_match, gantt_update, slot_lookup, slot_intersection, schedule,
        meta_schedule, fairshare_order, schedule_quota, schedule_calendar_quota, quota_rules, quota_calendar_check,
        quota_calendar_at, quota_calendar_split,
    )
}  # fmt: skip


@pytest.mark.parametrize("case", oar_cases(*CHECKS))
def test_what_the_tests_of_oar_expect_happens_here(case):
    CHECKS[case["kind"]](case["input"], case["expected"])
