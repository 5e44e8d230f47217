"""What a kind shows, it reads again as the same value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.model.resource import ResourceOrder
from oarlock.settings import kinds

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
EXAMPLES = {
    kinds.WORDS: st.lists(NAMES).map(tuple),
    kinds.COMMAND: st.lists(st.text()).map(tuple),
    kinds.YES_NO: st.booleans(),
    kinds.SECONDS: st.integers(0, 2**31 - 1),
    kinds.NUMBER: st.floats(allow_nan=False, allow_infinity=False),
    kinds.NETWORKS: st.lists(st.ip_addresses().map(str)).map(lambda texts: kinds.NETWORKS.read(" ".join(texts))),
    kinds.TARGETS: st.dictionaries(NAMES, st.floats(0, 100)),
    kinds.numbers("a", "b"): st.dictionaries(st.sampled_from("ab"), st.floats(allow_nan=False, allow_infinity=False)),
    kinds.PEOPLE: st.lists(st.one_of(NAMES, NAMES.map("@{}".format))).map(tuple),
    kinds.LEADERS: st.dictionaries(NAMES, st.lists(NAMES, min_size=1).map(tuple)),
    kinds.ORDER: st.lists(st.builds(ResourceOrder, NAMES, st.booleans()), min_size=1).map(tuple),
}


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.expected)
@given(data=st.data())
def test_what_is_shown_is_read_again(kind, data):
    value = data.draw(EXAMPLES[kind])
    assert kind.read(kind.show(value)) == value


@given(st.text())
def test_any_text_is_a_value_or_a_value_error(text):
    for kind in EXAMPLES:
        try:
            kind.read(text)
        except ValueError:
            continue


@pytest.mark.parametrize(
    ("kind", "text"),
    [(kinds.PEOPLE, text) for text in ("@", "ada @", "a@b", "@@staff")]
    + [(kinds.LEADERS, text) for text in ("astro", "=ada", "astro=", "astro=ada,", "astro=ada astro=bob")],
)
def test_a_role_without_a_name_is_refused(kind, text):
    with pytest.raises(ValueError, match=text.split()[-1]):
        kind.read(text)
