"""What is done about idle GPUs: when a job is warned, when it is ended, and when nothing may be done."""

import pytest

from oarlock.insight.idle_actions import ActingJob, due_action, is_excepted
from oarlock.insight.rules import read_rules
from oarlock.model.submission_errors import BadRule
from tests.insight.test_findings import gpus, job

NOW = 1_000_000


def rules(tmp_path, *lines, name="gpu.zero"):
    file = tmp_path / "findings.toml"
    file.write_text("\n".join(["[[finding]]", f'id = "{name}"', *lines, ""]))
    return {rule.id: rule for rule in read_rules(file).findings}


def idle(minutes, **more):
    return gpus((0, 0), run_seconds=minutes * 60, **more) | {"gpu_idle_now_seconds": minutes * 60}


def due(rule, minutes, warned=None):
    """Return the minutes of what is due after so many idle minutes, or 0; `warned` are minutes ago."""
    sent = {step: NOW - ago * 60 for step, ago in (warned or {}).items()}
    action = due_action(rule, idle(minutes), sent, now=NOW)
    return action.minutes if action else 0


@pytest.mark.parametrize(
    ("minutes", "warned", "action"),
    [
        (59, {}, 0), (60, {}, 60), (104, {60: 44}, 0), (105, {60: 45}, 105), (119, {60: 59, 105: 14}, 0),
        (120, {60: 60, 105: 15}, 120), (121, {60: 61, 105: 16, 120: 1}, 0),
        # The server was down: each step still has the time before it.
        (300, {}, 60), (300, {60: 44}, 0), (300, {60: 45}, 105), (300, {60: 60, 105: 14}, 0),
        (300, {60: 60, 105: 15}, 120),
        # A GPU worked meanwhile: what was sent before does not count.
        (60, {60: 200, 105: 100}, 60), (119, {60: 200, 105: 120}, 60),
    ],
)  # fmt: skip
def test_a_job_is_warned_twice_and_then_ended(tmp_path, minutes, warned, action):
    rule = rules(tmp_path, 'act = "delete"')["gpu.zero"]
    assert due(rule, minutes, warned) == action


def test_a_rule_that_warns_ends_nothing_and_others_do_nothing(tmp_path):
    warns = rules(tmp_path, 'act = "warn"')["gpu.zero"]
    assert [due(warns, 60), due(warns, 105, {60: 45}), due(warns, 500, {60: 400, 105: 300})] == [60, 105, 0]
    assert due(rules(tmp_path)["gpu.zero"], 500) == 0


def test_nothing_is_done_where_it_is_not_known_or_not_found(tmp_path):
    rule = rules(tmp_path, 'act = "delete"')["gpu.zero"]
    assert due_action(rule, idle(90) | {"gpu_idle_now_seconds": None}, {}, now=NOW) is None
    assert due_action(rule, idle(90) | {"gpus_unused": None}, {}, now=NOW) is None
    assert due_action(rule, idle(90) | {"gpus_unused": 0}, {}, now=NOW) is None
    assert due_action(rule, job() | {"gpu_idle_now_seconds": 9000}, {}, now=NOW) is None


def test_a_job_that_worked_before_is_found_by_the_other_rule(tmp_path):
    acting = rules(tmp_path, 'act = "delete"', name="gpu.idle_window")
    facts = job({}, [{"busy_mean_ratio": 0.3, "busy_most_ratio": 1, "idle_after_work_seconds": 3600,
                      "idle_now_seconds": 3600}])  # fmt: skip
    assert due_action(acting["gpu.idle_window"], facts, {}, now=NOW).minutes == 60
    works = facts | {"gpu_idle_now_seconds": 0}
    assert due_action(acting["gpu.idle_window"], works, {}, now=NOW) is None, "it was idle once, and works now"


@pytest.mark.parametrize(
    ("job", "excepted"),
    [
        (ActingJob("ada", "default", ()), True), (ActingJob("bob", "long", ()), True),
        (ActingJob("bob", "default", ("deploy",)), True), (ActingJob("bob", "default", ("container=x",)), True),
        (ActingJob("bob", "default", ("besteffort",)), False),
    ],
)  # fmt: skip
def test_users_queues_and_types_are_excepted(tmp_path, job, excepted):
    lines = ["except_users = ['ada']", "except_queues = ['long']", "except_types = ['deploy', 'container']"]
    assert is_excepted(rules(tmp_path, *lines)["gpu.zero"], job) is excepted


def test_only_rules_about_idle_gpus_may_act(tmp_path):
    with pytest.raises(BadRule, match=r"`cpu.low`: nothing can be done about it"):
        rules(tmp_path, 'act = "delete"', name="cpu.low")
