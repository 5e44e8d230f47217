"""What a request takes, whichever way it is compiled."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.lang import where
from oarlock.model.resource import ResourceOrder
from oarlock.model.snapshot import Shape
from oarlock.model.submission import ALL, BEST, BESTHALF, Level, ResourceGroup
from oarlock.model.submission_errors import UnknownProperty
from oarlock.plan.fit import fit as fit_module
from oarlock.plan.fit.fit import CountFit, EmptyFit, Fitter, GroupsFit, NodePartsFit, WholeNodesFit
from oarlock.plan.fit.tree import TreeFit, build_tree, choose
from tests.plan.drawing import chosen, cluster, laid, licences, node, shape, table

TWO_SWITCHES = table(
    *node("a", 4, switch="s1"), *node("b", 4, switch="s1"), *node("c", 4, switch="s2"), *licences(2)
)  # ids 1-4, 5-8, 9-12; 13, 14


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("core=3", CountFit),
        ("resource_id=ALL", CountFit),
        ("{network_address='a'}/cpu=1", TreeFit),
        ("nodes=2", WholeNodesFit),
        ("nodes=ALL", WholeNodesFit),
        ("{network_address<>'b'}/nodes=BEST", WholeNodesFit),
        ("{core<>'a.1'}/nodes=1", TreeFit),
        ("nodes=2/core=1", NodePartsFit),
        ("nodes=BEST/resource_id=2", NodePartsFit),
        ("nodes=2/core=ALL", TreeFit),
        ("switch=1/nodes=1", TreeFit),
        ("nodes=1+nodes=1", GroupsFit),
        ("{switch='s9'}/nodes=1", EmptyFit),
    ],
)
def test_the_quickest_right_way_is_chosen(text, way):
    assert type(Fitter(laid(TWO_SWITCHES)).compile(shape(text))) is way


def test_another_name_for_the_node_is_as_quick():
    made = table(*node("a", 2, host="x"), *node("b", 2, host="y"), *licences(1))
    assert type(Fitter(laid(made)).compile(shape("host=1"))) is WholeNodesFit
    odd = table(*node("a", 2, host="x"), *node("b", 2, host="x"))
    assert type(Fitter(laid(odd)).compile(shape("host=1"))) is TreeFit


def test_cores_numbered_anew_on_each_node_are_counted_as_quickly():
    rows = [{"network_address": name, "core": at} for name in ("a", "b") for at in range(3)]
    assert type(Fitter(laid(table(*rows))).compile(shape("nodes=2/core=2"))) is NodePartsFit
    assert type(Fitter(laid(table(*rows, rows[0]))).compile(shape("nodes=2/core=2"))) is TreeFit
    assert chosen(table(*rows), "nodes=2/core=2") == [1, 2, 4, 5]


@pytest.mark.manual(35, 36, 37, 38, 42)
@pytest.mark.parametrize(
    ("text", "among", "taken"),
    [
        ("core=3", None, [1, 2, 3]),
        ("core=3", [2, 7, 12, 13], [2, 7, 12]),
        ("core=4", [2, 7, 12, 13], []),
        ("core=ALL", None, list(range(1, 13))),
        ("core=ALL", range(2, 15), []),
        ("core=BESTHALF", [1, 5, 9], [1]),
        ("resource_id=13", None, list(range(1, 14))),
        ("nodes=2", None, list(range(1, 9))),
        ("nodes=2", [*range(2, 13)], list(range(5, 13))),
        ("nodes=3", [*range(2, 13)], []),
        ("nodes=BEST", [*range(2, 13)], list(range(5, 13))),
        ("nodes=BESTHALF", None, [1, 2, 3, 4]),
        ("nodes=1/core=3", [1, 2, 5, 6, 7, 9], [5, 6, 7]),
        ("nodes=2/core=2", [1, 2, 5, 6, 7, 9], [1, 2, 5, 6]),
        ("nodes=2/core=3", [1, 2, 5, 6, 7, 9], []),
        ("nodes=ALL/core=1", [2, 6, 10], [2, 6, 10]),
        ("nodes=ALL/core=1", [2, 6], []),
        ("nodes=2/core=5", None, []),
        ("nodes=1/core=1", [], []),
        ("switch=1/nodes=2", None, list(range(1, 9))),
        ("switch=1/nodes=2", [*range(2, 13)], []),
        ("switch=2/nodes=1/core=2", [3, 4, 6, 7, 11, 12], [3, 4, 11, 12]),
        ("switch=ALL/nodes=1/cpu=1", None, [1, 2, 9, 10]),
        ("switch=ALL/nodes=ALL/core=BEST", [4, 5, 9], [4, 5, 9]),
        ("switch=ALL/nodes=ALL/core=BEST", [4, 9], []),
        ("switch=BEST/nodes=2", None, list(range(1, 9))),
        ("cpu=2/core=1", [2, 3, 4], [2, 3]),
        ("{type='licence'}/resource_id=2", None, [13, 14]),
        ("nodes=1+{type='licence'}/resource_id=1", None, [1, 2, 3, 4, 13]),
        ("nodes=1+nodes=1/core=1", None, [1, 2, 3, 4, 5]),
        ("nodes=1+nodes=3/core=1", None, []),
        ("core=1+{switch='s1'}/nodes=2", None, []),
        ("{switch='s2'}/nodes=1+core=ALL", None, []),
        ("{switch='s9'}/nodes=1", None, []),
        ("nodes=1+{switch='s9'}/nodes=1", None, []),
    ],
)
def test_a_request_takes_the_first_that_will_do(text, among, taken):
    assert chosen(TWO_SWITCHES, text, among) == taken


def test_a_resource_without_a_value_at_a_level_is_not_there():
    half = table(*node("a", 4, gpu=None), *node("b", 2, gpu=1), *node("b", 2, gpu=None), *node("c", 2, gpu=2))
    assert chosen(half, "gpu=1") == [5, 6]
    assert chosen(half, "nodes=2/gpu=1") == [5, 6, 9, 10]
    assert chosen(half, "nodes=ALL/gpu=1", [5, 6, 9, 10]) == [5, 6, 9, 10]


def test_a_node_without_a_name_is_no_node():
    made = table(*node("a", 2), {"type": "licence", "network_address": "", "core": "l"})
    assert chosen(made, "nodes=BEST") == [1, 2]
    assert chosen(made, "nodes=2/core=1") == []
    assert chosen(made, "nodes=ALL/core=1", [1]) == [1]
    assert chosen(made, "core=3") == [1, 2, 3]


def test_a_part_of_a_node_with_the_property_is_all_that_is_asked_of_it():
    made = table(*node("a", 2), *node("b", 2, gpu="YES"), *node("b", 2))
    assert chosen(made, "{gpu='YES'}/nodes=1") == [3, 4]


@pytest.mark.parametrize("text", ["colour=1", "nodes=1/colour=2", "{colour=1}/nodes=1", "nodes=1+colour=1"])
def test_a_request_for_what_resources_do_not_have_is_refused_by_name(text):
    with pytest.raises(UnknownProperty, match="no property `colour`"):
        Fitter(laid(TWO_SWITCHES)).compile(shape(text))


def test_only_groups_that_want_the_same_resources_can_do_better_with_less():
    fitter = Fitter(laid(TWO_SWITCHES))
    assert fitter.compile(shape("nodes=1+{type='licence'}/resource_id=1")).monotone
    assert not fitter.compile(shape("core=1+nodes=1")).monotone


@pytest.mark.parametrize(
    ("resources", "order"),
    [
        (cluster(3, 4), (ResourceOrder("resource_id"),)),
        (cluster(3, 4), (ResourceOrder("core", descending=True),)),
        (table(*node("a", 1), *node("b", 2), *node("a", 1)), (ResourceOrder("resource_id"),)),
        (
            table(*(row for at in range(12) for row in node(f"n{at}", 2)), *node("fat", 20)),
            (ResourceOrder("resource_id"),),
        ),
    ],
    ids=["fields", "reversed", "mixed", "wide"],
)
def test_nodes_and_their_resources_are_turned_into_each_other(resources, order):
    layout = laid(resources, order)
    fitter = Fitter(layout)
    first, second = layout.nodes[0], layout.nodes[1]
    assert fitter.whole_nodes(layout.everything) == (1 << len(layout.nodes)) - 1
    assert fitter.whole_nodes(layout.everything ^ (first.bits & -first.bits)) == (1 << len(layout.nodes)) - 2
    assert fitter.touched_nodes((first.bits & -first.bits) | second.bits) == 0b11
    assert fitter.resources_of(0b11) == first.bits | second.bits


def test_answers_about_whole_nodes_are_not_kept_for_ever(monkeypatch):
    monkeypatch.setattr(fit_module, "_REMEMBERED", 2)
    layout = laid(cluster(2, 2))
    fitter = Fitter(layout)
    sets = [layout.bits_of(ids) for ids in ([1, 2], [3, 4], [1, 2, 3], [1, 2])]
    assert [fitter.whole_nodes(free) for free in sets] == [0b01, 0b10, 0b01, 0b01]
    assert len(fitter._whole) <= 2


def test_whole_is_said_only_when_it_is_sure():
    layout = laid(table(*node("a", 2), *node("b", 2), *licences(2)))
    fitter = Fitter(layout)
    assert fitter.is_whole(layout.bits_of([1, 2, 3, 4]), 0b11)
    assert fitter.is_whole(layout.bits_of([1, 2, 5]), 0b01)
    assert not fitter.is_whole(layout.bits_of([1, 2, 3, 5]), 0b11)


@pytest.mark.parametrize(
    ("text", "among", "offered"),
    [
        ("core=9", [1, 2, 13], 2),
        ("nodes=9", [*range(1, 9)], 2),
        ("nodes=9/core=2", [1, 2, 5, 6, 9], 2),
        ("nodes=9/cpu=1", [1, 2, 3, 5], 1),
        ("switch=9/nodes=1", [1, 2, 3, 4, 9], 1),
        ("switch=9/cpu=1/core=1", [1, 2, 9], 2),
        ("nodes=1+nodes=1", None, 1),
        ("nodes=9+nodes=1", None, 0),
        ("{switch='s9'}/nodes=1", None, 0),
    ],
)
def test_a_free_set_offers_so_many_of_the_outermost_units(text, among, offered):
    layout = laid(TWO_SWITCHES)
    fitter = Fitter(layout)
    fit = fitter.compile(shape(text))
    room = layout.everything if among is None else layout.bits_of(among)
    assert fit.offers(fitter.whole_nodes(room) if fit.of_nodes else room) == offered


MIXED = (ResourceOrder("resource_id"),)
COUNTS = [1, 2, 3, 5, 8, ALL, BEST, BESTHALF]


def racks(r: Random, per_node: list[int]):
    """Make nodes of these sizes on a few switches; two cores are a cpu, four a gpu."""
    rows = [
        {"network_address": f"n{at:03d}", "switch": f"s{at // 6}", "cpu": f"{at}.{core // 2}", "core": core,
         "gpu": f"{at}.{core // 4}" if at % 3 else None, "mem": r.choice([1, 2])}
        for at, size in enumerate(per_node)
        for core in range(size)
    ]  # fmt: skip
    return rows + licences(3)


CLUSTERS = {
    "narrow": [4] * 20,
    "byte": [8] * 20,
    "sixteen": [13] * 12,
    "wide": [6] * 18 + [40],
    "sixty-four": [33] * 6,
    "hundred and more": [129] * 3,
}


@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("mixed", [False, True])
@given(st.integers(0, 2**32))
def test_every_way_gives_what_the_tree_gives(name, mixed, seed):
    r = Random(seed)
    rows = racks(r, CLUSTERS[name])
    if mixed:
        r.shuffle(rows)
    layout = laid(table(*rows), MIXED)
    names = [level for level in ("switch", "network_address", "cpu", "gpu", "core") if r.random() < 0.4]
    condition = r.choice([None, "mem = 1", "core < 5", "network_address > 'n002'"])
    group = ResourceGroup(tuple(Level(level, r.choice(COUNTS)) for level in names or ["core"]))
    asked = Shape((group,), condition and where.parse(condition))
    fitter = Fitter(layout)
    fit = fitter.compile(asked)
    room = layout.bits_of(at for at in layout.ids if r.random() < r.choice([0.5, 0.9, 1]))
    allowed = fitter.allowed(asked, group)
    expected = choose(build_tree(layout, allowed, group.levels), room) if allowed else 0
    given_room = fitter.whole_nodes(room) if fit.of_nodes else room
    assert fit.take(given_room) == expected
    assert fit.fits(given_room) == bool(expected)
    assert fit.least <= room.bit_count() or not expected


@pytest.mark.parametrize("levels", [[("network_address", 0)], [("network_address", 1), ("core", -7)], [("core", 0)]])
def test_a_number_that_is_none_is_refused_before_anything_is_looked_for(levels):
    asked = Shape((ResourceGroup(tuple(Level(*level) for level in levels)),))
    with pytest.raises(ValueError, match="is not a count of resources"):
        Fitter(laid(cluster(1, 2))).compile(asked)
