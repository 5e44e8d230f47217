"""Sets as integers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.model.plan import lowest, positions, union, without
from tests.plan.drawing import free

bits = st.integers(0, 2**200) | st.integers(0, 2**2000).map(lambda number: number | 1 << 1999)


def test_units_are_drawn_from_the_first_on():
    assert free("##..") == 0b1100


@given(bits, bits)
def test_taking_away_leaves_what_is_in_the_first_only(one, other):
    assert set(positions(without(one, other))) == set(positions(one)) - set(positions(other))


@given(st.lists(bits, max_size=4))
def test_a_union_has_the_members_of_all(sets):
    assert set(positions(union(sets))) == {at for some in sets for at in positions(some)}


@given(bits)
def test_members_are_told_from_the_lowest_on(some):
    assert positions(some) == [at for at in range(some.bit_length()) if some >> at & 1]


@given(st.data(), bits)
def test_the_lowest_members_are_the_first_ones(data, some):
    wanted = data.draw(st.integers(0, some.bit_count()))
    assert positions(lowest(some, wanted)) == positions(some)[:wanted]


@pytest.mark.parametrize("wanted", [0, 1, 2, 6000, 9999, 10_000])
def test_the_lowest_of_many_are_found_however_many_are_wanted(wanted):
    assert lowest((1 << 10_000) - 1, wanted) == (1 << wanted) - 1
