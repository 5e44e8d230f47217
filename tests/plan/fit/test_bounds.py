"""Bounds: what the end of one search says about the next ones."""

from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.plan.fit.fit import Fitter, SearchBounds, ShapeBounds
from oarlock.plan.fit.tree import Demand
from tests.plan.drawing import laid, node, shape, table

LAYOUT = laid(table(*node("a", 4), *node("b", 2), *node("c", 4)))
FITTER = Fitter(LAYOUT)
TEXTS = (
    *(f"nodes={nodes}/core={cores}" for nodes, cores in product((1, 2, 3), (1, 2, 4))),
    *(f"core={cores}" for cores in (1, 3, 8)),
    *(f"nodes={nodes}" for nodes in (1, 3)),
    *(f"nodes={nodes}/cpu=1/core={cores}" for nodes, cores in product((1, 2), (1, 2))),
    "nodes=ALL", "nodes=BEST/core=2", "core=1+core=2",
)  # fmt: skip
FITS = {text: FITTER.compile(shape(text)) for text in TEXTS}
TEXT_OF = {fit: text for text, fit in FITS.items()}


def bound_after(easy: str, hard: str) -> int:
    bounds = SearchBounds()
    bounds.at(FITS[hard], 10)
    bounds.at(FITS[easy], 10)
    bounds.raise_to(FITS[easy], 10, 50)
    return bounds.at(FITS[hard], 10)


EASIER = {(easy, hard): easy == hard or bound_after(easy, hard) == 50 for easy, hard in product(TEXTS, TEXTS)}


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 99)), max_size=12))
def test_a_bound_holds_for_its_duration_and_every_longer_one(told):
    stairs, known = ShapeBounds(), [0] * 11
    for duration, start in told:
        stairs.raise_to(duration, start)
        known = [max(bound, start) if at >= duration else bound for at, bound in enumerate(known)]
        assert [stairs.at(at) for at in range(11)] == known


@pytest.mark.parametrize(
    ("easy", "hard"),
    [
        ("nodes=1/core=2", "nodes=2/core=2"),
        ("nodes=1/core=2", "nodes=1/core=4"),
        ("core=3", "nodes=2/core=2"),
        ("nodes=2/core=2", "nodes=3"),
        ("nodes=1/cpu=1/core=1", "nodes=2/cpu=1/core=2"),
        ("nodes=1", "nodes=1"),
    ],
)
def test_what_has_no_place_has_none_for_a_harder_shape(easy, hard):
    assert bound_after(easy, hard) == 50


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("nodes=2/core=2", "nodes=1/core=4"),
        ("nodes=1/core=4", "nodes=3/core=1"),
        ("nodes=2/core=1", "core=3"),
        ("nodes=1", "nodes=ALL"),
        ("nodes=1", "nodes=1/core=2"),
        ("core=1", "core=1+core=2"),
    ],
)
def test_shapes_that_cannot_be_compared_learn_nothing(one, other):
    assert bound_after(one, other) == 0


def test_a_shape_that_comes_late_learns_what_was_known_of_easier_ones():
    bounds = SearchBounds()
    bounds.at(FITS["core=1"], 10)
    bounds.raise_to(FITS["core=1"], 10, 50)
    assert [bounds.at(FITS["core=8"], duration) for duration in (9, 10, 11)] == [0, 50, 50]


TOLD = st.tuples(st.sampled_from(TEXTS), st.integers(1, 4), st.integers(1, 99))


@given(st.lists(st.sampled_from(TEXTS)), st.lists(TOLD, max_size=12))
def test_each_shape_knows_the_bounds_of_all_easier_ones(met, told):
    bounds = SearchBounds()
    for text in met:
        bounds.at(FITS[text], 1)
    for text, duration, start in told:
        bounds.at(FITS[text], duration)
        bounds.raise_to(FITS[text], duration, start)
    for text, duration in product(TEXTS, range(1, 5)):
        known = [start for easy, least, start in told if least <= duration and EASIER[easy, text]]
        assert bounds.at(FITS[text], duration) == max(known, default=0)


@given(st.permutations(TEXTS))
def test_each_shape_passes_on_what_it_learns_to_the_next_harder_ones_once(met):
    bounds = SearchBounds()
    for text in met:
        bounds.at(FITS[text], 1)
    known = {TEXT_OF[one.fit]: one for one in bounds._shapes.values()}
    for text, one in known.items():
        above = [other for other in known if other != text and EASIER[text, other]]
        nearest = [other for other in above if not any(EASIER[less, other] for less in above if less != other)]
        assert sorted(TEXT_OF[harder.fit] for harder in one.harder) == sorted(nearest)


class Counted:
    """Resources that count how often somebody asks whether they are the same."""

    def __init__(self) -> None:
        self.asked = 0

    def __eq__(self, other: object) -> bool:
        self.asked += 1
        return self is other

    __hash__ = object.__hash__


@dataclass(eq=False)
class Wish:
    """A shape of which only the numbers are known."""

    demand: Demand
    monotone: bool = True
    of_nodes: bool = False


def test_a_shape_is_compared_once_with_each_of_the_others():
    bounds, of, many = SearchBounds(), Counted(), 50
    for nodes in range(many):
        bounds.at(Wish(Demand(of, (nodes, many - nodes))), 1)
    of.asked = 0
    bounds.at(Wish(Demand(of, (0, 0))), 1)
    bounds.at(Wish(Demand(of, (many, many))), 1)
    assert of.asked == 2 * many + 2 * (many + 1)


def test_with_more_room_everything_is_forgotten():
    bounds = SearchBounds()
    bounds.at(FITS["core=1"], 10)
    bounds.raise_to(FITS["core=1"], 10, 50)
    bounds.clear()
    assert bounds.at(FITS["core=1"], 10) == 0


@given(easy=st.sampled_from(TEXTS), hard=st.sampled_from(TEXTS), ids=st.sets(st.sampled_from(LAYOUT.table.ids)))
def test_where_a_harder_shape_fits_the_easier_one_does(easy, hard, ids):
    free = LAYOUT.bits_of(ids)
    if bound_after(easy, hard) and fits(hard, free):
        assert fits(easy, free)


def fits(text: str, free: int) -> bool:
    fit = FITS[text]
    return fit.fits(FITTER.whole_nodes(free) if fit.of_nodes else free)
