"""Names of nodes, written short."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.model.nodeset import fold, unfold


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([], ""),
        (["login"], "login"),
        (["node3", "node1", "node2", "node7", "login"], "node[1-3,7],login"),
        (["n01", "n02", "n10"], "n[01-02,10]"),
        (["a1-ib", "a2-ib"], "a[1-2]-ib"),
        (["rack1node2", "rack1node3"], "rack1node[2-3]"),
        (["node7"], "node7"),
        (["node1", "node2", "node3", "node4", "node7"], "node[1-4,7]"),
        (["n08", "n09", "n10", "n11"], "n[08-11]"),
        (["n8", "n9", "n10"], "n[8-10]"),
        (["n08", "n100"], "n08,n100"),
        (["n010", "n10"], "n010,n10"),
        (["a1.lab", "a2.lab", "b1.lab"], "a[1-2].lab,b1.lab"),
        (["front", "n1", "front"], "n1,front"),
        (["r1n1", "r1n2", "r2n1"], "r1n[1-2],r2n1"),
        (["r01n08", "r01n09", "r01n10", "r02n08"], "r01n[08-10],r02n08"),
        (["n01", "n1", "n2"], "n01,n[1-2]"),
        (["n9", "n09", "n10", "n099", "n100"], "n9,n[09-10],n[099-100]"),
        (["x&y1", "x&y2", "n1!n2"], "x&y[1-2],n1!n2"),
        (["n3", "n1"], "n[1,3]"),
        (["n0", "n1"], "n[0-1]"),
        (["n00", "n01"], "n[00-01]"),
    ],
)
def test_node_names_are_written_short(names, folded):
    assert fold(names) == folded


def unfolded(text: str) -> set[str]:
    """Read what `fold` writes."""
    names = set()
    for part in _parts(text):
        before, _, rest = part.partition("[")
        if not rest:
            names.add(part)
            continue
        spans, _, after = rest.partition("]")
        for span in spans.split(","):
            first, _, last = span.partition("-")
            names |= {f"{before}{number:0{len(first)}d}{after}" for number in range(int(first), int(last or first) + 1)}
    return names


def _parts(text: str) -> list[str]:
    depth, parts = 0, [""]
    for sign in text:
        depth += (sign == "[") - (sign == "]")
        parts = [*parts, ""] if sign == "," and not depth else [*parts[:-1], parts[-1] + sign]
    return parts


@given(st.sets(st.from_regex(r"\A(n|rack1-)[0-9]{1,3}(\.lab)?\Z|\A[a-c]\Z"), min_size=1))
def test_short_names_stand_for_exactly_the_nodes_they_were_made_of(names):
    assert unfolded(fold(sorted(names))) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("login", ["login"]),
        ("node[1-3,7],login", ["node1", "node2", "node3", "node7", "login"]),
        ("r[1-2]n[08-10].lab", [f"r{rack}n{node}.lab" for rack in (1, 2) for node in ("08", "09", "10")]),
        ("a b\n c,,a", ["a", "b", "c"]),
        ("n[1, 3]", ["n1", "n3"]),
    ],
)
def test_folded_names_are_unfolded(text, names):
    assert unfold(text) == names


@given(st.lists(st.from_regex(r"[a-z]{1,3}[0-9]{0,3}(-ib)?", fullmatch=True), max_size=20))
def test_what_is_folded_unfolds_to_the_same_names(names):
    assert set(unfold(fold(names))) == set(names)


@pytest.mark.parametrize("text", ["n[1-3", "n]", "n[3-1]", "n[a]", "n[]", "n[1-99999]", "n[1-200][1-200]", "n[-1]"])
def test_a_text_that_names_nothing_sensible_is_refused(text):
    with pytest.raises(ValueError, match=r"`.*\.$"):
        unfold(text)
