"""What the facts of a node mean, drawn as facts."""

import pytest

from oarlock.cli import oarlock
from oarlock.server.doctor.diagnosis import Verdict, disk, worst
from oarlock.server.doctor.node_checks import LocalView, check_node, check_twins
from oarlock.server.doctor.node_facts import CgroupFacts, NodeAnswer, NodeFacts

HERE = LocalView("server", {"ada": (1001, "/home/ada", True)}, {"n1": ("10.0.0.1",)}, {"n1": ("n1.site",)})
ALL = CgroupFacts(2, ("cpu", "cpuset", "io", "memory", "pids"))


def answer(*, python=(3, 11, 2), uid=0, host="n1", now=100.0, cgroups=ALL, **more):
    users = {"ada": (1001, "/home/ada", True)}
    facts = NodeFacts(
        python, uid, host, now, cgroups, **{"users": users, "pid_max": 4194304, "threads_max": 99999} | more
    )
    return NodeAnswer(facts, "", 99.5, 100.5)


def bad(given, here=HERE):
    return [(each.check, each.verdict) for each in check_node("n1", given, here) if each.verdict]


def test_a_healthy_node_gives_no_cause_for_a_word():
    assert bad(answer()) == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (answer(python=(3, 8, 10)), ("python", Verdict.BROKEN)),
        (answer(now=105.0), ("clock", Verdict.WARNING)),
        (answer(now=40.0), ("clock", Verdict.BROKEN)),
        (answer(cgroups=CgroupFacts(0)), ("cgroups", Verdict.WARNING)),
        (answer(cgroups=CgroupFacts(2, ("cpu", "pids"))), ("cgroups", Verdict.WARNING)),
        (answer(systemd=True), ("delegation", Verdict.WARNING)),
        (answer(users={"ada": None}), ("users", Verdict.BROKEN)),
        (answer(users={"ada": (2002, "/home/ada", True)}), ("users", Verdict.BROKEN)),
        (answer(users={"ada": (1001, "/home/ada", False)}), ("homes", Verdict.BROKEN)),
        (answer(users={"ada": (1001, "/users/ada", True)}), ("homes", Verdict.WARNING)),
        (answer(host="other"), ("names", Verdict.WARNING)),
        (answer(hosts={"server": ()}), ("names", Verdict.WARNING)),
        (answer(disks={"/var": (1 << 20, 1 << 40)}), ("disk", Verdict.BROKEN)),
        (answer(disks={"/var": None}), ("disk", Verdict.BROKEN)),
        (answer(pid_max=4096), ("processes", Verdict.WARNING)),
        (NodeAnswer(None, "Permission denied (publickey)."), ("ssh", Verdict.BROKEN)),
    ],
)
def test_each_fault_is_named_by_its_check_alone(given, expected):
    assert bad(given) == [expected]


def test_the_way_out_of_another_host_key_can_be_typed():
    [fault] = check_node("n1", NodeAnswer(None, "Host key verification failed."), HERE)
    _, remove, _, setup, _ = fault.way_out.split("`")
    assert remove == "ssh-keygen -f /etc/oarlock/known_hosts -R n1"
    assert oarlock.options().parse_args(setup.split()[1:]).nodes == ["n1"]


def test_names_that_do_not_lead_back_are_a_warning():
    unknown, elsewhere = LocalView("server", addresses={"n1": ()}), LocalView("server", names={"n1": ("n7.site",)})
    assert bad(answer(users={}), unknown) == bad(answer(users={}), elsewhere) == [("names", Verdict.WARNING)]


def test_events_that_cannot_be_counted_are_a_warning_only_where_wanted():
    wanted = LocalView("server", HERE.users, counts_events=True)
    assert bad(answer(uid=5, paranoid=2), wanted) == [("perf", Verdict.WARNING)]
    assert bad(answer(uid=5, paranoid=2)) == []


def test_two_names_of_one_machine_are_broken():
    answers = {"n1": answer(boot="a"), "n2": answer(boot="b"), "n3": answer(boot="a"), "n4": NodeAnswer(None, "away")}
    assert [each.sentence for each in check_twins(answers)] == ["n1 and n3 are one machine"]


@pytest.mark.parametrize(
    ("free", "verdict"), [(60 << 30, 0), (20 << 30, 1), (1 << 29, 2), (1 << 20, 2), (0, 2)]
)  # of a TiB
def test_a_disk_is_judged_by_what_is_left(free, verdict):
    assert worst([disk("n1", "disk", "/var", (free, 1 << 40))]) == verdict
