"""The formats for programs: what goes in comes out again."""

import json
import re
import shutil
import subprocess
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.cli.layout import formats

DATA = {
    "1": {"name": None, "types": [], "nodes": ["a", "b"], "deep": {}, "start": 1794766964, "text": 'it\'s a \\ <&> "x"'}
}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(TEXTS, inside, max_size=3),
    max_leaves=8,
)


def test_json_is_laid_out_as_perl_does():
    assert formats.json({"78": {"b": [], "a": [1, None]}}) == (
        '{\n   "78" : {\n      "a" : [\n         1,\n         null\n      ],\n      "b" : []\n   }\n}\n'
    )


@given(PLAIN)
def test_json_comes_back(value):
    assert json.loads(formats.written(value, "json")) == value


def test_a_perl_structure_has_quotes_and_undef():
    assert formats.dumper(DATA) == (
        "{\n  '1' => {\n    'deep' => {},\n    'name' => undef,\n    'nodes' => [\n      'a',\n      'b'\n    ],\n"
        "    'start' => 1794766964,\n    'text' => 'it\\'s a \\\\ <&> \"x\"',\n    'types' => []\n  }\n}\n"
    )


def from_xml(text):
    """Read a structure back, as Perl's XML::Dumper would; every scalar is a text there."""

    def content(node):
        children = list(node)
        if node.get("defined") == "false":
            return None
        return understood(children[0]) if children else node.text or ""

    def understood(node):
        if node.tag == "scalar":
            return node.text or ""
        items = {item.get("key"): content(item) for item in node}
        return items if node.tag == "hashref" else list(items.values())

    [root] = ET.fromstring(text)
    return understood(root)


def test_xml_comes_back():
    data = DATA | {"sure": True}
    expected = json.loads(json.dumps(data).replace("1794766964", '"1794766964"').replace("true", '"1"'))
    assert from_xml(formats.xml(data)) == expected


@given(st.text())
def test_any_text_is_xml_that_can_be_read(text):
    impossible = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
    assert from_xml(formats.xml({"k": text})) == {"k": impossible.sub("\ufffd", text)}


def test_yaml_is_laid_out_as_oar_does():
    assert formats.yaml(DATA) == (
        "--- \n1: \n  deep: {}\n\n  name: ~\n  nodes: \n    - a\n    - b\n  start: 1794766964\n"
        '  text: it\'s a \\ <&> "x"\n  types: []\n\n'
    )


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("", "''"), ("NO", "'NO'"), ("true", "'true'"), ("~", "'~'"), ("null", "'null'"), ("12", "'12'"),
        ("1e3", "'1e3'"),
        ("0x1f", "'0x1f'"), ("1:30", "'1:30'"), ("2026-11-15", "'2026-11-15'"), ("-l x", "'-l x'"), ("a: b", "'a: b'"),
        ("a:", "'a:'"), ("a #b", "'a #b'"), ("x ", "'x '"), ("it's", "it's"), ("'q", "'''q'"), ("#x", "'#x'"),
        ("R=4,W=0:10:0 (Karma=0.0)", "R=4,W=0:10:0 (Karma=0.0)"), ("3 nodes", "3 nodes"), ("sleep 300", "sleep 300"),
        ("two\nlines\t\x1b", '"two\\x0alines\\x09\\x1b"'), ('"\n', '"\\"\\x0a"'), ("\u2028é", '"\\u2028é"'),
        ("\U000e0001", '"\\U000e0001"'), (True, "true"), (12, "12"), (None, "~"), ([], "[]"), ({}, "{}"),
    ],
)  # fmt: skip
def test_a_text_in_yaml_cannot_be_taken_for_something_else(value, written):
    assert formats.yaml(value) == f"--- {written}\n"


def test_lists_in_yaml_may_hold_structures():
    assert formats.yaml([{"a": 1}, [2]]) == "--- \n- \n  a: 1\n- \n  - 2\n"


@given(PLAIN)
def test_every_format_writes_anything_and_ends_its_last_line(value):
    for form in ("dumper", "xml", "yaml", "json"):
        assert formats.written(value, form).endswith("\n")


ESCAPES = "\x1b[2J\x07\x7f\x9b31m\x90q\u202e\u2028"
"""What clears a terminal, rings its bell, colours it or turns it round: control characters of both sets, and others."""


@pytest.mark.parametrize("form", ["dumper", "xml", "yaml", "json"])
def test_no_format_sends_a_terminal_what_it_would_obey(form):
    text = formats.written({f"key{ESCAPES}": {"name": f"a{ESCAPES}b", "list": [ESCAPES]}, "$plain@": 'a"b\\c'}, form)
    assert "".join(c for c in text if not c.isprintable()).strip("\n") == ""


@pytest.mark.skipif(shutil.which("perl") is None, reason="perl is not installed here")
def test_a_perl_structure_with_control_characters_comes_back():
    value = {"a": f'$x @y "z" \\ \'{ESCAPES}', "plain": "$x @y"}
    script = "use utf8; binmode STDIN, ':utf8'; my $t = do { local $/; <STDIN> }; my $v = eval $t; die $@ if $@;"
    script += "print join ',', map { ord } split //, $v->{a} . $v->{plain};"
    ran = subprocess.run(
        ["perl", "-e", script], input=formats.dumper(value), capture_output=True, text=True, check=True
    )
    assert "".join(chr(int(code)) for code in ran.stdout.split(",")) == value["a"] + value["plain"]
