"""How the cases of OAR's own tests are tried here: one function a kind, which takes the input and what is expected.

A case is written as its file says it (`conventions`): sets are lists of inclusive pairs, a job that starts at s for d
seconds is there in s..s+d-1, walltimes of `schedule` cases include the security time.
"""

from oarlock.lang import quotas, where
from oarlock.model.job import JobState, Reservation
from oarlock.model.snapshot import (
    Choice,
    Dependency,
    PlacedJob,
    Queue,
    QuotaRule,
    QuotaSpan,
    ResourceTable,
    Shape,
    Snapshot,
    Usage,
    WaitingJob,
)
from oarlock.model.submission import Level, ResourceGroup
from oarlock.plan.fit.fit import Fitter
from oarlock.plan.planner import make_plan
from oarlock.plan.policies import by_karma
from oarlock.plan.settings import Fairness, PlanSettings
from oarlock.plan.timeline.occupancy import FOREVER
from oarlock.plan.timeline.timeline import Timeline, slots
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
                rows[number - 1].setdefault(name, at)  # where blocks overlap, the first one has the resource
    return table(*rows)


def chosen(levels: dict[str, list], counts: list[int], available) -> list[int]:
    """Give what a request for so many of each level takes of what is available."""
    highest = max(numbers(block)[-1] for blocks in levels.values() for block in blocks)
    layout = laid(blocks_table(levels, highest))
    asked = Shape((ResourceGroup(tuple(Level(name, count) for name, count in zip(levels, counts, strict=True))),))
    return sorted(layout.ids_of(Fitter(layout).compile(asked).take(layout.bits_of(numbers(available)))))


def block_select(given, expected):
    assert chosen({"block": given["blocks"]}, [given["count"]], given["available"]) == numbers(expected["selected"])


def block_filter(given, expected):
    """Give the blocks with a free resource: BEST of them, one resource of each."""
    levels = {"block": given["blocks"]}
    highest = max(numbers(block)[-1] for block in given["blocks"])
    layout = laid(blocks_table(levels, highest))
    asked = Shape((ResourceGroup((Level("block", -2), Level("resource_id", 1))),))
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
    """Take or give back what jobs have; what reaches out of the window is cut off there."""
    timeline, last = timeline_of(given["slots"]), given["slots"][-1][1]
    change = timeline.cover if given["op"] == "occupy" else timeline.release
    for job in given["jobs"]:
        change(job["start"], min(job["start"] + job["duration"], last + 1), bits(job["resources"]))
    found = [(begin, end - 1, free) for begin, end, free in slots(timeline) if end and begin <= last]
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
    now, highest = given["window"][0], numbers(given["resources"])[-1]
    waiting = tuple(_waiting(job, shapes, security_time, highest) for job in given["waiting"])
    asked = Snapshot(
        resources=blocks_table(given["hierarchy"], highest),
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


def _waiting(job, shapes: list[Shape], security_time: int, highest: int) -> WaitingJob:
    choices = []
    for at, moldable in enumerate(job["moldables"]):
        shapes.append(Shape(tuple(_group(group, highest) for group in moldable["groups"])))
        choices.append(Choice(at + 1, len(shapes) - 1, moldable["walltime"] - security_time))
    after = tuple(
        Dependency(other["id"], JobState(other["state"]), other["exit_code"]) for other in job.get("depends_on", [])
    )
    return WaitingJob(job_id=job["id"], choices=tuple(choices), after=after, **_who(job))


def _group(group, highest: int) -> ResourceGroup:
    """Read a group; what is `allowed` of it is a condition, unless that is everything."""
    levels = tuple(Level(name, count) for name, count in group["levels"])
    allowed = group.get("allowed", [[1, highest]])
    if numbers(allowed) == list(range(1, highest + 1)):
        return ResourceGroup(levels)
    ranges = " OR ".join(f"resource_id BETWEEN {low} AND {high}" for low, high in allowed)
    return ResourceGroup(levels, where.check(where.parse(ranges), {"resource_id": int}))


def _placed(job, now: int, security_time: int) -> PlacedJob:
    begun = job["start"] <= now
    return PlacedJob(
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
    words = ("placeholder", "allowed", "timesharing")
    types = {**job.get("types", {}), **{word: job[word] for word in words if word in job}}
    if job.get("no_quotas"):
        types["no_quotas"] = ""
    return {
        "name": job.get("name"),
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
    gaps = [str(mistake) for mistake in quotas.mistakes({**given, **sets})]
    assert all(told.startswith("No period speaks of") for told in gaps)
    assert {"covers_week": not gaps} == expected


def quota_calendar_at(given, expected):
    at = given["seconds_after_monday_0h"]
    [span] = [one for one in calendar(given["calendar"], days=14)[1] if one.begin <= at < one.end]
    assert {"rules": span.name, "seconds_left": span.end - at} == expected


def quota_calendar_split(given, expected):
    begin, last = given["window"]
    inside = [one for one in calendar(given["calendar"], days=21)[1] if one.begin <= last]
    pieces = [[min(one.end, last + 1) - max(one.begin, begin), one.name] for one in inside]
    assert pieces == expected["pieces"]


def shift(text: str) -> int:
    """Read the seconds of `now-350`, `T+60`, `T-2h` or `T`."""
    sign = "-" if "-" in text else "+"
    seconds = text.partition(sign)[2] or "0"
    return int(f"{sign}{seconds.removesuffix('h')}") * (3600 if seconds.endswith("h") else 1)


def instant(text: str, now: str) -> int:
    """Read a date of a job; `now` says where the pass is, seen from T."""
    return NOW + shift(text) - (0 if text.startswith("now") else shift(now))


def meta_schedule(given, expected):
    """Make one pass: two resources a node, and an administrator's settings under their own names."""
    states = {state: given.get(f"{state.lower()}_resources", 0) for state in ("Absent", "Suspected")}
    [(state, away)] = [(state, count) for state, count in states.items() if count] or [("Alive", 0)]
    rows = [
        {"network_address": f"n{at // 2}", "core": at, "state": state if at < away else "Alive",
         "next_state": given.get("resource_1_next_state", "UnChanged") if at == 0 else "UnChanged",
         "cm_availability": NOW + given.get("available_for", 0) if at < away else 0}
        for at in range(given["resources"])
    ]  # fmt: skip
    rules = quotas.read({"quotas": given.get("quotas", {})}).sets["quotas"]
    plan = planned(
        table(*rows),
        *(_job(job, given.get("now", "T-2h")) for job in given["jobs"]),
        security_time=given["security_time"],
        besteffort_notice=given.get("SCHEDULER_BESTEFFORT_KILL_DURATION_BEFORE_RESERVATION", 0),
        wake_up="available_for" in given,
        given={"quotas": quotas.resolved(rules, len(rows))},
    )
    told = {"accepted": sorted(plan.accept), "killed": sorted(plan.kill), "woken": sorted(plan.wake)}
    told |= {str(job["id"]): _told(plan, job) for job in given["jobs"]}
    for key, outcome in expected.items():
        assert (told[key] if isinstance(outcome, list) else {word: told[key][word] for word in outcome}) == outcome


def _told(plan, job):
    """Tell what a pass decided about a job; every answer makes a reservation Scheduled."""
    number, dated = job["id"], "reservation_at" in job or "accepted_reservation_at" in job
    place = plan.placements.get(number)
    return {
        "state": "toLaunch" if number in plan.start else "Error" if number in plan.refuse else "Waiting",
        "reservation": str(Reservation.SCHEDULED if dated else Reservation.NONE),
        "start": place and place.start - NOW,
        "resources": len(plan.resources(number)) if place else 0,
    }


def _job(job, now: str):
    request, types = job.get("request", "=0"), tuple(job.get("types", ()))
    queue = "besteffort" if "besteffort" in types else "default"
    said = {"user": job.get("user", "ada"), "types": types, "queue": queue}
    if "state" in job:
        return runs(job["id"], range(1, job["assigned"] + 1), NOW + 9000, **said)
    if "accepted_reservation_at" in job:
        start, needed = instant(job["accepted_reservation_at"], now), int(request.partition("=")[2])
        return reserved(job["id"], range(1, needed + 1), start, start + job["walltime"], **said)
    if "reservation_at" in job:
        return reserves(job["id"], request, instant(job["reservation_at"], now), job["walltime"], **said)
    if "moldables" in job:
        requests, walltimes = zip(*job["moldables"], strict=True)
        return asks(job["id"], *requests, walltime=walltimes, **said)
    return asks(job["id"], request, walltime=job["walltime"], where=job.get("properties"), **said)


def fairshare_order(given, expected):
    used, asked = given["used"], given["asked"]
    usage = Usage(sum(used.values()), sum(asked.values()), used, asked)
    jobs = [WaitingJob(job_id=at, user=user, queue="default", choices=()) for at, user in enumerate(reversed(used))]
    assert [job.user for job in by_karma(jobs, usage, Fairness())] == expected["order"]


CHECKS = {
    check.__name__: check
    for check in (
        block_select, block_filter, hierarchy_match, gantt_update, slot_lookup, slot_intersection, schedule,
        meta_schedule, fairshare_order, schedule_quota, schedule_calendar_quota, quota_rules, quota_calendar_check,
        quota_calendar_at, quota_calendar_split,
    )
}  # fmt: skip
