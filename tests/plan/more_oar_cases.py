"""More cases of the kinds that OAR's own tests have: other sizes, levels, dates, and what those in the file leave out.

Written as the cases of that file are; each is a name, a kind, an input and what is expected.
"""

from typing import Any

Pairs = list[list[int]]
ALL: Pairs = [[1, 32]]
NODES = [[[1, 8]], [[9, 16]], [[17, 24]], [[25, 32]]]
SWITCHES = [[[1, 16]], [[17, 32]]]
QUARTERS = [[[low, low + 3]] for low in range(1, 32, 4)]
HALVES_OF_THOSE = [[[low, low + 1]] for low in range(1, 32, 2)]
LAST = 2**31 - 1


def matched(available: Pairs, levels: list[list[Pairs]], counts: list[int]) -> dict[str, Any]:
    return {"available": available, "levels": levels, "counts": counts}


def changed(op: str, begin: int, end: int, free: Pairs, *jobs: tuple[int, int, Pairs]) -> dict[str, Any]:
    drawn = [{"start": start, "duration": duration, "resources": taken} for start, duration, taken in jobs]
    return {"op": op, "slots": [[begin, end, free]], "jobs": drawn}


def waits(number: int, walltime: int, *groups: tuple[str, int] | tuple[str, int, Pairs], **said: Any) -> dict[str, Any]:
    """Draw a waiting job; a group is a level, how many of it, and of which resources if not of all."""
    read = [{"levels": [[one[0], one[1]]], "allowed": one[2] if len(one) > 2 else ALL} for one in groups]
    return {"id": number, "moldables": [{"walltime": walltime, "groups": read}], **said}


def there(number: int, start: int, duration: int, resources: Pairs, **said: Any) -> dict[str, Any]:
    return {"id": number, "start": start, "duration": duration, "resources": resources, **said}


def scheduled(*jobs: dict[str, Any], until: int = 1000, security_time: int = 20, **said: Any) -> dict[str, Any]:
    return {
        "resources": ALL,
        "hierarchy": {"node": NODES},
        "window": [0, until],
        "security_time": security_time,
        "already_scheduled": [job for job in jobs if "start" in job],
        "waiting": [job for job in jobs if "start" not in job],
        **said,
    }


MATCHING = [
    ("two switches are all of them", "hierarchy_match", matched(ALL, [SWITCHES], [2]), {"selected": ALL}),
    ("a switch that is not whole is passed over", "hierarchy_match", matched([[10, 32]], [SWITCHES], [1]),
     {"selected": [[17, 32]]}),
    ("a level below that has too few", "hierarchy_match", matched(ALL, [SWITCHES, NODES], [1, 3]), {"selected": []}),
    ("two of each of three levels", "hierarchy_match", matched(ALL, [SWITCHES, NODES, QUARTERS], [2, 2, 1]),
     {"selected": [[1, 4], [9, 12], [17, 20], [25, 28]]}),
    ("five levels", "hierarchy_match",
     matched([[3, 32]], [SWITCHES, NODES, QUARTERS, HALVES_OF_THOSE, [[[one, one]] for one in range(1, 33)]],
             [2, 1, 2, 1, 1]),
     {"selected": [[3, 3], [5, 5], [17, 17], [21, 21]]}),
    ("five levels where the first switch has too few", "hierarchy_match",
     matched([[3, 3], [9, 9], [18, 32]], [SWITCHES, NODES, QUARTERS, HALVES_OF_THOSE], [1, 2, 1, 1]),
     {"selected": [[19, 20], [25, 26]]}),
    ("blocks of odd sizes", "hierarchy_match",
     matched([[1, 64]], [[[[1, 40]], [[41, 64]]], [[[1, 7]], [[8, 33]], [[34, 40]], [[41, 63]], [[64, 64]]]], [2, 2]),
     {"selected": [[1, 33], [41, 64]]}),
    ("no block is whole", "block_select",
     {"available": [[2, 31]], "blocks": SWITCHES, "count": 1}, {"selected": []}),
    ("scattered blocks, one of them not whole", "block_select",
     {"available": [[1, 5], [7, 30]], "blocks": [[[1, 4], [10, 11]], [[6, 9]], [[20, 22], [30, 30]]], "count": 2},
     {"selected": [[1, 4], [10, 11], [20, 22], [30, 30]]}),
    ("every block has something", "block_filter",
     {"available": [[4, 4], [17, 17], [30, 30]], "blocks": [[[1, 4], [6, 9]], [[10, 17]], [[20, 30]]]},
     {"kept": [[[1, 4], [6, 9]], [[10, 17]], [[20, 30]]]}),
]  # fmt: skip

SLOTS = [
    ("to the end and over it", "gantt_update", changed("occupy", 1, 20, ALL, (5, 20, [[10, 20]])),
     {"slots": [[1, 4, ALL], [5, 20, [[1, 9], [21, 32]]]]}),
    ("all the time", "gantt_update", changed("occupy", 10, 50, ALL, (1, 100, [[10, 20]])),
     {"slots": [[10, 50, [[1, 9], [21, 32]]]]}),
    ("begun before", "gantt_update", changed("occupy", 10, 50, ALL, (5, 20, [[10, 20]])),
     {"slots": [[10, 24, [[1, 9], [21, 32]]], [25, 50, ALL]]}),
    ("two that begin together", "gantt_update", changed("occupy", 1, 300, ALL, (5, 50, [[1, 1]]), (5, 10, [[2, 2]])),
     {"slots": [[1, 4, ALL], [5, 14, [[3, 32]]], [15, 54, [[2, 32]]], [55, 300, ALL]]}),
    ("two that overlap", "gantt_update", changed("occupy", 1, 30, ALL, (5, 10, [[1, 1]]), (7, 15, [[2, 2]])),
     {"slots": [[1, 4, ALL], [5, 6, [[2, 32]]], [7, 14, [[3, 32]]], [15, 21, [[1, 1], [3, 32]]], [22, 30, ALL]]}),
    ("given back, begun before", "gantt_update", changed("release", 10, LAST, [], (5, 10, [[10, 50]])),
     {"slots": [[10, 14, [[10, 50]]], [15, LAST, []]]}),
    ("given back by two, the later one first", "gantt_update",
     changed("release", 10, LAST, [], (100, 30, [[10, 20]]), (20, 200, [[40, 50]])),
     {"slots": [[10, 19, []], [20, 99, [[40, 50]]], [100, 129, [[10, 20], [40, 50]]], [130, 219, [[40, 50]]],
                [220, LAST, []]]}),
    *((f"the slot at {time}", "slot_lookup", {"slots": [[50, 249], [250, 499], [500, 1000]], "time": time},
       {"slot_number": number}) for time, number in [(5, None), (49, None), (50, 1), (249, 1), (250, 2), (1000, 3)]),
    ("nothing is free in all of them", "slot_intersection", {"slots": [[1, 4, [[1, 8]]], [5, 9, [[9, 32]]]]},
     {"common": []}),
]  # fmt: skip

YOP = {"container": "yop"}
SCHEDULES = [
    ("around one that runs", "schedule", scheduled(there(2, 0, 30, [[1, 8]]), waits(4, 60, ("node", 2))),
     {"4": {"start": 0, "resources": [[9, 24]]}}),
    ("a job to come leaves half the nodes", "schedule",
     scheduled(there(1, 10, 600, [[1, 16]]), waits(5, 60, ("node", 2)), waits(6, 60, ("node", 2)),
               waits(7, 10, ("node", 4))),
     {"5": {"start": 0, "resources": [[17, 32]]}, "6": {"start": 60, "resources": [[17, 32]]}, "7": {"start": 610}}),
    ("a later job fits before an earlier one", "schedule",
     scheduled(there(1, 0, 100, [[1, 24]]), waits(2, 50, ("node", 2)), waits(3, 100, ("node", 1)),
               waits(4, 101, ("node", 1))),
     {"2": {"start": 100, "resources": [[1, 16]]}, "3": {"start": 0, "resources": [[25, 32]]},
      "4": {"start": 100, "resources": [[17, 24]]}}),
    ("what ends first is taken, the first of equal ones", "schedule",
     scheduled(there(1, 0, 30, [[1, 16]]),
               {"id": 2, "moldables": [*waits(0, 60, ("node", 4))["moldables"], *waits(0, 90, ("node", 2))["moldables"],
                                       *waits(0, 89, ("node", 1))["moldables"]]}),
     {"2": {"start": 0, "resources": [[17, 24]]}}),
    ("an inner job that may not use its container", "schedule",
     scheduled(waits(1, 60, ("node", 2), types={"container": ""}),
               waits(2, 30, ("node", 1, [[17, 32]]), types={"inner": "1"})),
     {"1": {"start": 0}, "2": {"start": None}}),
    ("a second job in a container to come", "schedule",
     scheduled(there(1, 200, 150, [[7, 27]], types={"container": ""}),
               there(2, 210, 70, [[9, 16]], types={"inner": "1"}),
               waits(3, 30, ("node", 1), types={"inner": "1"})),
     {"3": {"start": 200, "resources": [[17, 24]]}}),
    ("a room in a room", "schedule",
     scheduled(waits(1, 80, ("node", 2), types={"container": ""}),
               waits(2, 50, ("node", 2), types={"container": "", "inner": "1"}),
               waits(3, 30, ("node", 1), types={"inner": "2"}), security_time=10),
     {"3": {"start": 0, "resources": [[1, 8]]}}),
    ("one room of two containers, the first too short", "schedule",
     scheduled(there(1, 200, 50, [[7, 32]], types=YOP), there(2, 1000, 200, [[15, 25]], types=YOP),
               waits(3, 100, ("node", 1), types={"inner": "yop"}), until=5000),
     {"3": {"start": 1000, "resources": [[17, 24]]}}),
    ("one room of two containers, both of them needed", "schedule",
     scheduled(there(1, 0, 200, [[1, 16]], types=YOP), there(2, 100, 200, [[17, 32]], types=YOP),
               waits(3, 70, ("node", 3), types={"inner": "yop"})),
     {"3": {"start": 100, "resources": [[1, 24]]}}),
    ("after a job that waits", "schedule",
     scheduled(waits(1, 60, ("node", 2)),
               waits(2, 80, ("node", 2), depends_on=[{"id": 1, "state": "Waiting", "exit_code": 0}])),
     {"1": {"start": 0}, "2": {"start": 60}}),
    ("never after a job that failed", "schedule",
     scheduled(waits(2, 80, ("node", 2), depends_on=[{"id": 1, "state": "Terminated", "exit_code": 256}])),
     {"2": {"start": None}}),
    ("kept for others", "schedule",
     scheduled(there(1, 200, 150, [[7, 27]], placeholder="yop"), waits(2, 150, ("node", 4)),
               waits(3, 500, ("node", 2), allowed="yop"), waits(4, 60, ("node", 4), allowed="other")),
     {"2": {"start": 0}, "3": {"start": 150, "resources": [[1, 16]]}, "4": {"start": 650}}),
    ("a name that nobody keeps anything under", "schedule",
     scheduled(waits(1, 80, ("node", 4), placeholder="yop"), waits(2, 60, ("node", 4), allowed="poy")),
     {"1": {"start": 0}, "2": {"start": 80}}),
    ("shared by all", "schedule",
     scheduled(waits(1, 60, ("node", 4), timesharing="*,*"), waits(2, 80, ("node", 4), timesharing="*,*"),
               waits(3, 10, ("node", 1))),
     {"1": {"start": 0}, "2": {"start": 0}, "3": {"start": 80}}),
    ("shared by jobs of one name", "schedule",
     scheduled(waits(1, 60, ("node", 3), name="a", timesharing="*,name"),
               waits(2, 60, ("node", 3), name="b", timesharing="*,name"),
               waits(3, 60, ("node", 3), name="a", user="bob", timesharing="*,name")),
     {"1": {"start": 0}, "2": {"start": 60}, "3": {"start": 0, "resources": [[1, 24]]}}),
]  # fmt: skip


TOTO = {"user": "toto", "project": "", "queue": "default"}
WEEK: dict[str, Any] = {
    "periodical": [["* mon-wed * *", "first"], ["* thu-sun * *", "second"]],
    "first": {"*,*,*,/": [16, -1, -1]},
    "second": {"*,*,*,/": [24, -1, -1]},
}
HOLIDAY = {**WEEK, "oneshot": [[43200, 259200, "holiday"]], "holiday": {"*,*,*,*": [32, -1, -1]}}


def bounded(quotas: dict[str, list[int]], *jobs: dict[str, Any]) -> dict[str, Any]:
    return {**scheduled(*jobs, until=10_000, security_time=0), "quotas": quotas, "quota_job_types": ["*"]}


def in_a_week(calendar: dict[str, Any], *jobs: dict[str, Any]) -> dict[str, Any]:
    return {**scheduled(*jobs, until=604_799, security_time=0), "calendar": calendar}


QUOTAS = [
    ("no rules", "schedule_quota", bounded({}, waits(1, 60, ("node", 2), **TOTO)), {"1": {"start": 0}}),
    ("as much as is allowed", "schedule_quota", bounded({"*,*,*,/": [16, -1, -1]}, waits(1, 60, ("node", 2), **TOTO)),
     {"1": {"start": 0, "resources": [[1, 16]]}}),
    ("a job to come counts", "schedule_quota",
     bounded({"*,*,*,/": [8, -1, -1]}, there(1, 50, 100, [[17, 24]], **TOTO), waits(2, 200, ("node", 1), **TOTO),
             waits(3, 100, ("node", 1), **{**TOTO, "user": "lulu"})),
     {"2": {"start": 150, "resources": [[1, 8]]}, "3": {"start": 0, "resources": [[1, 8]]}}),
    ("one at a time", "schedule_quota",
     bounded({"*,*,besteffort,*": [-1, -1, -1], "*,*,*,toto": [-1, 1, -1]}, waits(1, 50, ("node", 1), **TOTO),
             waits(2, 50, ("node", 1), **TOTO)),
     {"1": {"start": 0}, "2": {"start": 50}}),
    ("each user's own limit", "schedule_quota",
     bounded({"*,*,*,/": [-1, 1, -1]}, there(1, 100, 120, [[1, 24]], **{**TOTO, "user": "lulu"}),
             waits(2, 160, ("node", 1), **TOTO), waits(3, 260, ("node", 1), **TOTO)),
     {"2": {"start": 0, "resources": [[25, 32]]}, "3": {"start": 160, "resources": [[25, 32]]}}),
    ("without quotas", "schedule_quota",
     bounded({"*,*,*,/": [8, 1, -1]}, waits(1, 50, ("node", 3), no_quotas=True, **TOTO),
             waits(2, 50, ("node", 1), **TOTO)),
     {"1": {"start": 0}, "2": {"start": 0, "resources": [[25, 32]]}}),
    ("in the second half of the week", "schedule_calendar_quota",
     in_a_week(WEEK, waits(1, 60, ("node", 3), **TOTO), waits(2, 60, ("node", 4), **TOTO),
               waits(3, 302_400, ("node", 1), **TOTO), waits(4, 60, ("node", 1), **TOTO)),
     {"1": {"start": 259_200, "resources": [[1, 24]]}, "2": {"start": None}, "3": {"start": 259_260},
      "4": {"start": 0, "resources": [[1, 8]]}}),
    ("without quotas in any half", "schedule_calendar_quota",
     in_a_week(WEEK, waits(2, 60, ("node", 4), no_quotas=True, **TOTO)), {"2": {"start": 0, "resources": ALL}}),
    ("one set of rules for all the week", "quota_calendar_check", {"periodical": [["* * * *", "all"]]},
     {"covers_week": True}),
    ("as OAR also writes it", "quota_calendar_check", {"periodical": [["*,*,*,*", "all"]]}, {"covers_week": True}),
    ("an hour is missing", "quota_calendar_check",
     {"periodical": [["09:00-00:00 mon * *", "day"], ["00:00-08:00 mon * *", "night"], ["* tue-sun * *", "night"]]},
     {"covers_week": False}),
    ("on a holiday", "quota_calendar_at", {"calendar": HOLIDAY, "seconds_after_monday_0h": 129_600},
     {"rules": "holiday", "seconds_left": 129_600}),
    ("two weeks", "quota_calendar_split", {"calendar": WEEK, "window": [0, 1_209_599]},
     {"pieces": [[259_200, "first"], [345_600, "second"], [259_200, "first"], [345_600, "second"]]}),
    ("a week with a holiday", "quota_calendar_split", {"calendar": HOLIDAY, "window": [0, 604_799]},
     {"pieces": [[43_200, "first"], [216_000, "holiday"], [345_600, "second"]]}),
]  # fmt: skip


def asks(number: int, request: str = "resource_id=4", walltime: int = 60, **said: Any) -> dict[str, Any]:
    return {"id": number, "request": request, "walltime": walltime, **said}


def passed(*jobs: dict[str, Any], resources: int = 5, **said: Any) -> dict[str, Any]:
    return {"resources": resources, "security_time": 60, "jobs": list(jobs), **said}


BESTEFFORT = {"id": 1, "state": "Running", "types": ["besteffort"], "assigned": 2}
SHARES = {"types": ["timesharing=*,*"]}
PASSES = [
    ("at once", "meta_schedule", passed(asks(1)), {"1": {"state": "toLaunch"}}),
    ("one after the other", "meta_schedule", passed(*(asks(one, "resource_id=2") for one in range(1, 6))),
     {"2": {"start": 0}, "3": {"start": 120}, "4": {"start": 120}, "5": {"start": 240, "state": "Waiting"}}),
    ("accepted", "meta_schedule", passed(asks(1, reservation_at="now+10")),
     {"accepted": [1], "1": {"state": "Waiting", "reservation": "Scheduled"}}),
    ("accepted though it shares", "meta_schedule", passed(asks(1, reservation_at="now+10", **SHARES)),
     {"accepted": [1], "1": {"state": "Waiting", "reservation": "Scheduled"}}),
    ("over before it is asked for", "meta_schedule", passed(asks(1, reservation_at="now-1000")),
     {"accepted": [], "1": {"state": "Error"}}),
    ("its end has passed", "meta_schedule", passed(asks(1, accepted_reservation_at="now-2000")),
     {"1": {"state": "Error"}}),
    ("late", "meta_schedule", passed(asks(1, accepted_reservation_at="now-20")),
     {"1": {"state": "toLaunch", "start": 0}}),
    ("none of its resources is there", "meta_schedule",
     passed(asks(1, accepted_reservation_at="now-20"), suspected_resources=5), {"1": {"state": "Waiting"}}),
    ("one is missing for longer than it waits for", "meta_schedule",
     passed(asks(1, "resource_id=3", 7200, accepted_reservation_at="T"), resources=3, now="T+300",
            resource_1_next_state="Dead"), {"1": {"state": "toLaunch", "resources": 2}}),
    ("one is missing, yet not for long", "meta_schedule",
     passed(asks(1, "resource_id=3", 7200, accepted_reservation_at="T"), resources=3, now="T+299",
            resource_1_next_state="Absent"), {"1": {"state": "Waiting", "reservation": "Scheduled"}}),
    ("where nobody else wants to", "meta_schedule", passed(asks(1, "resource_id=1", types=["besteffort"])),
     {"1": {"state": "toLaunch"}}),
    ("until somebody does", "meta_schedule", passed(BESTEFFORT, asks(2, "resource_id=5", 100)),
     {"killed": [1], "2": {"state": "Waiting"}}),
    ("beside it there is room", "meta_schedule", passed(BESTEFFORT, asks(2, "resource_id=3", 100)),
     {"killed": [], "2": {"state": "toLaunch"}}),
    ("together with it", "meta_schedule",
     passed({**BESTEFFORT, "types": ["besteffort", "timesharing=*,*"], "assigned": 5},
            asks(2, "resource_id=1", **SHARES)),
     {"killed": [], "2": {"state": "toLaunch"}}),
    ("one job at a time", "meta_schedule",
     passed(*(asks(number, "resource_id=1", walltime, user="toto")
              for number, walltime in [(1, 100), (2, 200), (3, 200)]),
            quotas={"*,*,*,/": [-1, 1, -1], "/,*,*,*": [-1, -1, 5]}),
     {"1": {"start": 0}, "2": {"start": 160}, "3": {"start": 420}}),
    ("two users do not share", "meta_schedule",
     passed(*(asks(number, user=user, types=["timesharing=user,*"]) for number, user in [(1, "toto"), (2, "titi")])),
     {"1": {"start": 0}, "2": {"start": 120}}),
    ("everybody shares", "meta_schedule", passed(asks(1, **SHARES), asks(2, **SHARES)),
     {"1": {"start": 0}, "2": {"start": 0}}),
    ("the same node twice", "meta_schedule",
     passed(*(asks(one, "resource_id=2", properties="network_address = 'n1'") for one in (1, 2))),
     {"1": {"start": 0}, "2": {"start": 120}}),
    ("a node each", "meta_schedule",
     passed(*(asks(one, f"{{network_address = 'n{one}'}}/resource_id=1", properties=f"network_address = 'n{one}'")
              for one in (1, 2))), {"1": {"start": 0}, "2": {"start": 0}}),
    ("the alternative that ends first", "meta_schedule",
     passed(asks(1, "resource_id=3"), {"id": 2, "moldables": [["resource_id=4", 60], ["resource_id=2", 70]]}),
     {"2": {"start": 0, "resources": 2}}),
    ("no alternative fits beside it", "meta_schedule",
     passed(asks(1, "resource_id=3"), {"id": 2, "moldables": [["resource_id=4", 60], ["resource_id=3", 70]]}),
     {"2": {"start": 120, "resources": 4}}),
    ("nodes that sleep are woken", "meta_schedule", passed(asks(1), absent_resources=5, available_for=1000),
     {"1": {"state": "Waiting"}, "woken": ["n0", "n1"]}),
    ("only those that are wanted", "meta_schedule",
     passed(asks(1, "network_address=2/resource_id=1", properties="network_address != 'n1'"), resources=6,
            absent_resources=6, available_for=1000), {"1": {"state": "Waiting"}, "woken": ["n0", "n2"]}),
]  # fmt: skip

MORE = [*MATCHING, *SLOTS, *SCHEDULES, *QUOTAS, *PASSES]
