"""Requests: what `-l` and `-p` ask for."""

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oarlock.lang import duration, request, where
from oarlock.model.condition import And, Column, Compare, In, Literal
from oarlock.model.errors import SyntaxRefused, TooLong
from oarlock.model.submission import ALL, BEST, BESTHALF, WORDS, Alternative, Level, ResourceGroup, ResourceRequest
from oarlock.model.submission_errors import BadCount, BadDuration, TypesDiffer, UnknownProperty
from tests.lang.cases import golden_submissions, needs_golden, oar_cases
from tests.lang.trees import conditions

GPU = Compare("=", Column("gpu"), Literal("YES"))


def group(condition=None, **levels):
    return ResourceGroup(tuple(Level(name, count) for name, count in levels.items()), condition)


def alternative(text, **options):
    [only] = request.parse([text], **options).alternatives
    return only


@pytest.mark.manual(35, 38, 39, 40, 42)
@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("nodes=2", Alternative((group(network_address=2),))),
        ("/node=2", Alternative((group(network_address=2),))),
        ("core=ALL", Alternative((group(core=ALL),))),
        ("core=best", Alternative((group(core=BEST),))),
        ("core=BestHalf", Alternative((group(core=BESTHALF),))),
        ("nodes=4/cpu=1,walltime=2:00:00", Alternative((group(network_address=4, cpu=1),), 7200)),
        (" / nodes = 4 / cpu = 1 , walltime = 2 ", Alternative((group(network_address=4, cpu=1),), 7200)),
        ("a=1+b=2", Alternative((group(a=1), group(b=2)))),
        ("/a=1 + /b=2/c=3", Alternative((group(a=1), group(b=2, c=3)))),
        ("nodes=2,core=1", Alternative((group(network_address=2), group(core=1)))),
        ("walltime=1,core=3", Alternative((group(core=3),), 3600)),
        ("core=1,Walltime=0:90:90", Alternative((group(core=1),), 5490)),
        ("{gpu='YES'}/core=1", Alternative((group(GPU, core=1),))),
        ("{gpu='YES'}core=1", Alternative((group(GPU, core=1),))),
        (" { gpu = 'YES' } / core=1 + {gpu='YES'}/core=2", Alternative((group(GPU, core=1), group(GPU, core=2)))),
        (
            "{host in ('a+b','c/d}','e,f')}/core=1",
            Alternative((group(In(Column("host"), (Literal("a+b"), Literal("c/d}"), Literal("e,f"))), core=1),)),
        ),
        ("{gpu='YES' and gpu='YES'}/core=1", Alternative((group(And((GPU, GPU)), core=1),))),
        ("core=00000000000004", Alternative((group(core=4),))),
        ("core=2147483647", Alternative((group(core=2**31 - 1),))),
    ],
)
def test_a_request_is_read_as_oar_reads_it(text, asked):
    assert alternative(text) == asked
    assert alternative(request.show_alternative(asked)) == asked


@pytest.mark.manual(5, 43)
def test_every_l_is_an_alternative_and_p_holds_for_all():
    asked = request.parse(["core=1,walltime=2", "core=2,walltime=1"], where="gpu = 'YES'")
    assert asked == ResourceRequest((Alternative((group(core=1),), 7200), Alternative((group(core=2),), 3600)), GPU)


def test_only_a_walltime_or_no_l_at_all_means_the_default_resources():
    default = (group(resource_id=1),)
    assert alternative("walltime=0:0:30") == Alternative(default, 30)
    assert request.parse([]) == ResourceRequest((Alternative(default),))
    assert request.parse(["core=1", "walltime=1"]).alternatives == (
        Alternative((group(core=1),)),
        Alternative(default, 3600),
    )


@pytest.mark.manual(7)
def test_the_site_says_what_nodes_are_and_what_the_default_is():
    site = {"nodes_property": "host", "default_resources": "/nodes=1/core=2,walltime=3"}
    assert alternative("nodes=1+node=2", **site) == Alternative((group(host=1), group(host=2)))
    assert alternative("walltime=1", **site) == Alternative((group(host=1, core=2),), 3600)
    assert request.parse([], **site).alternatives == (Alternative((group(host=1, core=2),), 10800),)


def test_default_resources_that_are_none_are_refused():
    with pytest.raises(SyntaxRefused, match="expected a property and a count"):
        request.parse([], default_resources="walltime=1")


def test_what_asks_the_same_is_the_same():
    one, other = alternative("/nodes=2/core=1,walltime=1"), alternative("node = 2 / core = 01 , walltime=0:60")
    assert {one: "compiled"}[other] == "compiled"


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        ("", 0, "resources, such as `nodes=1`"),
        ("foo", 3, "`=` and a count"),
        ("/nodes", 6, "`=` and a count"),
        ("/nodes=/core=1", 7, "a whole number from 1 to 2147483647, ALL, BEST or BESTHALF"),
        ("nodes=", 6, "a whole number from 1 to 2147483647, ALL, BEST or BESTHALF"),
        ("nodes==1", 6, "a whole number from 1 to 2147483647, ALL, BEST or BESTHALF"),
        ("nodes=1/", 8, "a property, such as `nodes`"),
        ("nodes=1//core=1", 8, "a property, such as `nodes`"),
        ("nodes=1,", 8, "a property, such as `nodes`"),
        ("nodes=1+", 8, "a property, such as `nodes`"),
        ("+nodes=1", 0, "a property, such as `nodes`"),
        ("1=1", 0, "a property, such as `nodes`"),
        ("nodes=1 core=1", 8, "`/`, `+`, `,` or the end"),
        ("nodes=1}", 7, "`/`, `+`, `,` or the end"),
        ("nodes=1{gpu='YES'}", 7, "`/`, `+`, `,` or the end"),
        ("nodes=1/walltime=2", 8, "a property"),
        ("nodes=1+walltime=2", 8, "a property"),
        ("walltime", 8, "`=` and a time, such as `walltime=1:30:00`"),
        ("walltime=1,core=1,walltime=2", 18, "no second walltime"),
        ("core=1/CORE=2", 7, "another property than `CORE`, which stands above already"),
        ("nodes=1/network_address=2", 8, "another property than `network_address`, which stands above already"),
        ("{gpu='YES'}", 11, "a property, such as `nodes`"),
        ("{}/nodes=1", 1, "a property, a text in single quotes or a number"),
        ("{mem>16/nodes=1", 7, "AND, OR or `}`"),
        ("{mem>16", 7, "AND, OR or `}`"),
        ("core=1+{mem > 64GB}/nodes=1", 16, "AND, OR or `}`"),
        ("core=1+{a = 'x}/nodes=1", 12, "a property, a text in single quotes or a number"),
        ("{(a = 1}/nodes=1", 7, "AND, OR or `)`"),
        ("{a = 1 {b = 2}}/nodes=1", 7, "AND, OR or `}`"),
    ],
)
def test_a_mistake_is_shown_at_its_place_in_the_whole_text(text, at, expected):
    with pytest.raises(SyntaxRefused) as refusal:
        request.parse([text])
    assert (refusal.value.text, refusal.value.at, refusal.value.expected) == (text, at, expected)


@pytest.mark.parametrize("count", ["0", "-1", "1.5", "two", "1e3", "2147483648", "9" * 4000, "0" * 4000, "٣", "1_0"])
def test_a_count_that_cannot_be_had_is_refused(count):
    with pytest.raises(BadCount) as refusal:
        request.parse([f"core=1/cpu={count}"])
    assert refusal.value.at == 11


@pytest.mark.parametrize(
    ("walltime", "at"), [("0", 16), ("1:2:3:4", 21), ("-1", 16), ("abc", 16), ("", 16), ("2+core=1", 17), (" 2 h", 19)]
)
def test_a_bad_walltime_is_shown_in_the_whole_request(walltime, at):
    text = f"core=1,walltime={walltime}"
    with pytest.raises(BadDuration) as refusal:
        request.parse([text])
    assert (refusal.value.text, refusal.value.at) == (text, at)


def test_the_picture_has_the_caret_under_the_mistake():
    with pytest.raises(BadCount) as refusal:
        request.parse(["/nodes=2/core=1.5,walltime=2"])
    assert refusal.value.full_text() == (
        "`1.5` resources cannot be asked for: "
        "expected a whole number from 1 to 2147483647, ALL, BEST or BESTHALF.\n"
        "  /nodes=2/core=1.5,walltime=2\n"
        "                ^"
    )


def test_limits_hold_for_each_text_and_their_number():
    with pytest.raises(TooLong, match="The request is 4097 bytes long"):
        request.parse(["x" * 4097])
    with pytest.raises(TooLong, match="The condition is 4097 bytes long"):
        request.parse(["core=1"], where="x" * 4097)
    assert len(request.parse(["core=1"] * 64).alternatives) == 64
    with pytest.raises(TooLong, match="There are 65 alternatives"):
        request.parse(["core=1"] * 65)


@pytest.mark.manual(11)
def test_names_and_values_are_held_against_the_columns_there_are():
    types = {"network_address": str, "Core": int, "mem": int}
    asked = request.parse(["{MEM > '64'}/nodes=1/core=2"], where="Mem < '9'")
    assert request.check(asked, types) == ResourceRequest(
        (Alternative((group(Compare(">", Column("mem"), Literal(64)), network_address=1, Core=2),)),),
        Compare("<", Column("mem"), Literal(9)),
    )


@pytest.mark.parametrize(
    ("text", "condition", "refusal"),
    [
        ("cores=1", None, UnknownProperty),
        ("{memory = 1}/core=1", None, UnknownProperty),
        ("core=1", "mem = 'x'", TypesDiffer),
    ],
)
def test_a_request_for_what_is_not_there_is_refused(text, condition, refusal):
    with pytest.raises(refusal):
        request.check(request.parse([text], where=condition), {"core": int, "mem": int})


def test_a_request_is_shown_as_the_options_that_ask_for_it():
    asked = request.parse(["{gpu='YES'}/nodes=2+core=all,walltime=1", "core=4"], where="host != '$x`\\'")
    assert request.show(asked) == (
        '-l "{gpu = \'YES\'}/network_address=2+/core=ALL,walltime=1:00:00" -l "/core=4" -p "host != \'\\$x\\`\\\\\'"'
    )


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: name.lower() not in {"node", "nodes", "walltime"}
)
levels = st.lists(
    st.builds(Level, names, st.integers(1, 2**31 - 1) | st.sampled_from(sorted(WORDS.values()))),
    min_size=1,
    max_size=3,
    unique_by=lambda level: level.name.lower(),
)
groups = st.builds(ResourceGroup, levels.map(tuple), st.none() | conditions(max_leaves=3))
alternatives = st.builds(
    Alternative, st.lists(groups, min_size=1, max_size=3).map(tuple), st.none() | st.integers(1, duration.LONGEST)
)
requests = st.builds(
    ResourceRequest, st.lists(alternatives, min_size=1, max_size=3).map(tuple), st.none() | conditions(max_leaves=3)
)


@settings(max_examples=50)
@given(requests)
def test_a_request_that_was_shown_is_read_as_itself(asked):
    words = shlex.split(request.show(asked))
    options = list(zip(words[::2], words[1::2], strict=True))
    texts, condition = [value for option, value in options if option == "-l"], dict(options).get("-p")
    assert request.parse(texts, where=condition) == asked


# The manual writes `sql1` where a clause belongs; these stand in its place.
PLACEHOLDERS = {"sql1": "mem > 1", "sql2": "mem > 2"}


def filled(text):
    for placeholder, clause in PLACEHOLDERS.items():
        text = text.replace(placeholder, clause)
    return text


@pytest.mark.parametrize("case", oar_cases("parse_request"))
def test_the_requests_of_oars_own_tests_give_what_they_gave_there(case):
    def expected_group(one):
        condition = where.parse(filled(one["property"])) if one["property"] else None
        return ResourceGroup(tuple(Level(name, WORDS.get(count, count)) for name, count in one["levels"]), condition)

    asked = request.parse(
        [filled(text) for text in case["input"]["requests"]],
        nodes_property=case["input"]["nodes_property"],
        default_resources=case["input"]["default_resources"],
    )
    assert asked.alternatives == tuple(
        Alternative(tuple(map(expected_group, one["groups"])), one["walltime"]) for one in case["expected"]["moldables"]
    )


@pytest.mark.parametrize("case", oar_cases("parse_request_error"))
def test_what_oar_refuses_is_refused_here(case):
    with pytest.raises(SyntaxRefused):
        request.parse(case["input"]["requests"], nodes_property=case["input"]["nodes_property"])


@needs_golden
def test_what_a_real_oar_was_asked_is_understood_or_refused_here():
    refused = set()
    for name, texts, condition in golden_submissions():
        try:
            request.parse(texts, where=condition)
        except SyntaxRefused:
            refused.add(name)
    assert refused == {
        *("bad_syntax_brace", "bad_syntax_l", "bad_syntax_word", "bad_value_float", "bad_value_neg", "bad_sql_inject"),
        # These OAR takes, and then breaks or cuts short.
        *("bad_value_zero", "bad_walltime_zero", "bad_walltime_4f"),
    }
