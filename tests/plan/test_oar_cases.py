"""What OAR's own tests say of matching, slots, scheduling, fair sharing and quotas happens here, too."""

import pytest

from tests.lang.cases import oar_cases
from tests.plan.more_oar_cases import MORE
from tests.plan.oar_cases import CHECKS

_WAITS = "a reservation waits for resources that leave, up to its timeout"
AGAINST = {
    "test_temporal_quotas_window_time_limit_reached": "a job over two periods obeys the rules of both",
    "test_temporal_slotSet_oneshot": "when a one-shot period is over, the week goes on where it is by then",
    "test_db_all_in_one_quotas_2": "a limit for each user (`/`) does not count the jobs of others",
    "001_advance_reservation_with_absent_resource.sh, late": _WAITS,
    "002_advance_reservation_with_dead_resource.sh, late": _WAITS,
}
"""Tests of OAR that contradict its manual, and why; decision 0012 says more."""


def name_of(case) -> str:
    """Name the test that a case is from, and which half of it."""
    name = case["origin"].rpartition("/")[2].rpartition("::")[2]
    return f"{name}, late" if case["input"].get("now", "").startswith("T+") else name


@pytest.mark.parametrize("case", oar_cases(*CHECKS))
def test_what_the_tests_of_oar_expect_happens_here(case):
    if name_of(case) in AGAINST:
        with pytest.raises(AssertionError):
            CHECKS[case["kind"]](case["input"], case["expected"])
        return
    CHECKS[case["kind"]](case["input"], case["expected"])


@pytest.mark.parametrize(("kind", "given", "expected"), [pytest.param(*case, id=name) for name, *case in MORE])
def test_more_cases_of_the_same_kinds(kind, given, expected):
    CHECKS[kind](given, expected)
