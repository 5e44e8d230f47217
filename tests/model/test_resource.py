"""Resources: the CPUs that a resource stands for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.model.resource import parse_cpus
from oarlock.node.cgroup.base import format_cpu_list


@pytest.mark.parametrize(
    ("value", "cpus"),
    [
        (3, (3,)),
        ("3", (3,)),
        ("0,32", (0, 32)),
        ("0-3", (0, 1, 2, 3)),
        ("0-1,32-33", (0, 1, 32, 33)),
        (" 5 , 1 ", (1, 5)),
        ("2,2", (2,)),
        ("8191", (8191,)),
        (None, ()),
        ("", ()),
    ],
)
def test_a_resource_names_its_cpus_as_the_kernel_does(value, cpus):
    assert parse_cpus(value) == cpus


@given(st.sets(st.integers(0, 8191), min_size=1, max_size=64))
def test_what_the_kernel_writes_is_read_back(cpus):
    assert parse_cpus(format_cpu_list(sorted(cpus))) == tuple(sorted(cpus))


@pytest.mark.parametrize(
    "value", ["a", "-1", -1, "3-", "-", "3-1", "0,,1", "0;1", "8192", "0-99999999999", "٣", "1.5", "0x1", "0 1", "\0"]
)
def test_what_is_not_a_list_of_cpus_is_refused(value):
    with pytest.raises(ValueError, match="is not a"):
        parse_cpus(value)
