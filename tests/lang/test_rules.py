"""Admission rules: read from TOML, asked of a submission, doing what they name and nothing else."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.lang import request as requests
from oarlock.lang import where
from oarlock.lang.rules import FIELDS, RuleAcceptance, RuleContext, RuleRefusal, apply, read
from oarlock.model.condition import Column, Compare, Literal
from oarlock.model.job import JobKind
from oarlock.model.submission import Submission
from oarlock.model.submission_errors import BadRule

PROPERTIES = {"type": str, "besteffort": str, "mem": int, "owner": str, "core": int, "network_address": str, "x": str}


def job(*asked: str, where_: str | None = None, **fields) -> Submission:
    return Submission(**{"user": "ada", "command": "true", "groups": ("users", "gpu"), **fields},
                      request=requests.parse(asked, where=where_, default_resources="/core=1"))  # fmt: skip


def rule(text: str):
    """Read one rule without a name."""
    return read(f'[[rule]]\nname = "r"\n{text}', file="f.toml").rules


def ruled(text: str, submission: Submission, **known) -> Submission:
    done = apply(rule(text), submission, RuleContext(properties=PROPERTIES, **known))
    assert isinstance(done, RuleAcceptance), done
    return done.submission


def holds(when: str, submission: Submission, **known) -> bool:
    done = apply(rule(f'when = """{when}"""\nreject = "no"'), submission, RuleContext(properties=PROPERTIES, **known))
    return isinstance(done, RuleRefusal)


YES = [
    "user = 'ada'",
    "USER LIKE 'a%'",
    "group = 'gpu'",
    "group IN ('x', 'gpu')",
    "group LIKE 'g_u'",
    "group != 'admin'",
    "group NOT IN ('admin', 'root')",
    "group IS NOT NULL",
    "type IS NULL",
    "type != 'besteffort'",
    "queue IS NULL",
    "project = 'p'",
    "interactive = 'NO' AND reservation = 'NO' AND hold = 'NO' AND use_key = 'NO'",
    "walltime > '1:59:59'",
    "walltime = 7200",
    "walltime BETWEEN '1:00:00' AND '3:00:00'",
    "shortest_walltime IN ('0:30', '5')",
    "alternatives = 2",
    "nodes = 6",
    "resources = 25",
    "level = 'core' AND level = 'network_address'",
    "array_size = 3",
    "dependencies = 2",
    "command LIKE 'sleep%'",
    "checkpoint = 60",
    "property = 'besteffort' AND property != 'drain'",
    "NOT (user = 'bob')",
    "queue = 'x' OR user = 'ada'",
    "waiting_jobs = 3 AND waiting_reservations = 1",
    "user IN FILE '/names'",
    "user NOT IN FILE '/none'",
    "group IN FILE '/groups'",
]
NO = [
    "user = 'bob'",
    "group = 'admin'",
    "group != 'gpu'",
    "group IS NULL",
    "type = 'besteffort'",
    "queue = 'default'",
    "queue != 'default'",  # it has no queue: unknown is not true
    "NOT queue = 'default'",
    "queue = 'default' AND user = 'ada'",
    "queue IN FILE '/names'",
    "queue NOT IN FILE '/names'",
    "container = 'NO'",
    "reservation_start > 0",
    "user NOT IN FILE '/names'",
    "walltime > '2:00:00'",
]
JOB = job(
    "/network_address=2/core=4+/network_address=4/core=4,walltime=2",
    "/core=25,walltime=0:30",
    project="p", array=("1", "2", "3"), after=(4, 5), command="sleep 1", checkpoint=60,
)  # fmt: skip
KNOWN = {
    "waiting_jobs": 3,
    "waiting_reservations": 1,
    "lists": {"/names": frozenset({"ada"}), "/none": frozenset(), "/groups": frozenset({"gpu"})},
}


@pytest.mark.parametrize("when", YES)
def test_a_condition_that_is_true_lets_the_rule_act(when):
    assert holds(when, JOB, **KNOWN)


@pytest.mark.parametrize("when", NO)
def test_a_condition_that_is_false_or_unknown_does_not(when):
    assert not holds(when, JOB, **KNOWN)


def test_counts_that_are_words_cannot_be_counted():
    wide = job("/network_address=ALL/core=2", "/core=3")
    assert holds("nodes IS NULL AND resources IS NULL", wide)


def test_a_rule_without_a_condition_always_acts():
    assert apply(rule('reject = "never, {user}"'), JOB, RuleContext(properties={})) == RuleRefusal(
        rule('reject = "never, {user}"')[0], "never, ada"
    )


CHANGES = [
    ('default = { queue = "default" }', {}, {"queue": "default"}),
    ('default = { queue = "default" }', {"queue": "night"}, {"queue": "night"}),
    ('set = { queue = "day", project = "of-{user}" }', {"queue": "night"}, {"queue": "day", "project": "of-ada"}),
    ('route = "admin"', {"queue": "x"}, {"queue": "admin"}),
    ("default = { checkpoint = 30 }", {}, {"checkpoint": 30}),
    ("default = { checkpoint = 30 }", {"checkpoint": 60}, {"checkpoint": 60}),
    ("set = { hold = true, signal = 10 }", {}, {"hold": True, "checkpoint_signal": 10}),
    ('add_type = "besteffort"', {"types": ("noop",)}, {"types": ("noop", "besteffort")}),
    ('add_type = ["a", "b"]', {"types": ("b",)}, {"types": ("b", "a")}),
    ('remove_type = ["a", "c"]', {"types": ("a", "b")}, {"types": ("b",)}),
    ('add_constraint_after_validation = "mem > 4"', {}, {"rule_where": ("mem > 4",)}),
]


@pytest.mark.parametrize(("text", "before", "after"), CHANGES)
def test_a_rule_changes_what_it_names_and_nothing_else(text, before, after):
    assert ruled(text, job(**before)) == job(**{**before, **after})


WALLTIMES = [
    ('set = { walltime = "2" }', [7200, 7200, 7200]),
    ("default = { walltime = 60 }", [3600, 60, 36000]),
    ('default = { walltime = "{default_walltime}" }', [3600, 1800, 36000]),
    ('clamp_max = { walltime = "5:00:00" }', [3600, None, 18000]),
    ("clamp_min = { walltime = 7200 }", [7200, None, 36000]),
]


@pytest.mark.parametrize(("text", "expected"), WALLTIMES)
def test_walltimes_change_in_every_alternative(text, expected):
    before = job("/core=1,walltime=1", "/core=2", "/core=3,walltime=10")
    after = ruled(text, before, default_walltime=1800)
    assert [one.walltime for one in after.request.alternatives] == expected
    assert [one.groups for one in after.request.alternatives] == [one.groups for one in before.request.alternatives]


def test_a_constraint_holds_beside_what_was_asked_for_whatever_it_says():
    after = ruled("""add_constraint = "besteffort = 'YES'" """, job(where_="mem = 1 or mem = 2"))
    assert where.show(after.request.where) == "(mem = 1 OR mem = 2) AND besteffort = 'YES'"


def test_a_constraint_for_groups_spares_those_that_speak_of_the_property():
    after = ruled(
        """add_constraint_to_groups = "type = 'default'" """,
        job("{type = 'licence'}/core=1+/core=2", "{mem > 1}/core=3"),
    )
    assert list(map(requests.show_alternative, after.request.alternatives)) == [
        "{type = 'licence'}/core=1+{type = 'default'}/core=2",
        "{mem > 1 AND type = 'default'}/core=3",
    ]


@given(st.text(max_size=30).filter(lambda text: "\0" not in text))
def test_what_a_user_says_stays_a_value_in_a_constraint(project):
    after = ruled("""add_constraint = "owner = '{project}'" """, job(project=project))
    assert after.request.where == Compare("=", Column("owner"), Literal(project))


@pytest.mark.manual(118)
def test_rules_tell_what_they_did_and_only_then():
    text = 'default = { queue = "default" }\nprint = "now in {queue}"'
    known = RuleContext(properties={})
    assert apply(rule(text), job(), known).messages == ("[ADMISSION RULE] now in default",)
    assert apply(rule(text), job(queue="x"), known).messages == ()
    warning = 'when = "nodes IS NULL"\nwarn = "{user}: {walltime} ({walltime_seconds} s) on {nodes} nodes"'
    assert apply(rule(warning), job("/core=1,walltime=1:30"), known).messages == (
        "[ADMISSION RULE] ada: 1:30:00 (5400 s) on  nodes",
    )
    assert apply(rule('print = "hello"'), job(), known).messages == ("[ADMISSION RULE] hello",)


@pytest.mark.manual(116)
def test_a_later_rule_sees_what_an_earlier_one_did():
    rules = read(
        """
        [[rule]]
        name = "first"
        route = "night"
        [[rule]]
        name = "second"
        when = "queue = 'night'"
        reject = "closed"
        """,
        file="f.toml",
    ).rules
    known = RuleContext(properties={})
    assert apply(rules, job(), known) == RuleRefusal(rules[1], "closed")
    assert apply(rules[::-1], job(), known) == RuleAcceptance(job(queue="night"))


def test_types_that_are_not_allowed_and_levels_that_are_refused_are_named():
    known = RuleContext(properties=PROPERTIES)
    allow = rule('allow_types = ["noop", "inner=%"]\nreject = "no {type}"')
    assert apply(allow, job(types=("noop", "inner=4")), known).messages == ()
    assert apply(allow, job(types=("noop", "noops")), known).sentence == "no noops"
    levels = rule('refuse_levels = ["MEM"]\nreject = "no {level}"')
    assert apply(levels, job("/core=1", "/core=1+/mem=1"), known).sentence == "no mem"
    assert apply(levels, job("/core=1"), known) == RuleAcceptance(job("/core=1"))


@pytest.mark.parametrize(
    "text",
    [
        'set = { name = "{command}" }',  # a name with a slash in it
        """add_constraint = "drain = 'NO'" """,  # a property that is not there
        """add_constraint = "mem = '{user}'" """,  # a text for a number
        'set = { walltime = "{user}" }',
    ],
)
def test_a_rule_that_does_not_work_refuses_and_says_so(text):
    done = apply(rule(text), job(command="/bin/true"), RuleContext(properties=PROPERTIES))
    assert isinstance(done, RuleRefusal)
    assert done.broken
    assert done.rule.name == "r"


BAD = {
    "[[rule]]\nname 'x'": "f.toml, line 2: this is not TOML: Expected '=' after a key",
    "[[rule]]": "f.toml, rule 1: it has no name.",
    "[rule]\nname='x'": "f.toml: `rule` is not a list of tables.",
    "[[rules]]\nname='x'": "f.toml: there is no table `rules`.",
    "[[rule]]\nname='x'": "f.toml, rule `x`: it does nothing.",
    "[[rule]]\nname='x'\nrejekt='y'": "f.toml, rule `x`: there is no `rejekt`.",
    "[[rule]]\nname='x'\nreject=3": "f.toml, rule `x`: `reject` expects a text.",
    "[[rule]]\nname='x'\nwhen=3\nreject='n'": "f.toml, rule `x`: `when` expects a condition in quotes.",
    "[[rule]]\nname='x'\nwhen='quue = 3'\nreject='n'": "f.toml, rule `x`: There is no property `quue`.",
    "[[rule]]\nname='x'\nwhen='queue ='\nreject='n'": "f.toml, rule `x`: The condition ends too early",
    "[[rule]]\nname='x'\nwhen=\"user IN FILE 'a'\"\nreject='n'": "expected an absolute path in single quotes",
    "[[rule]]\nname='x'\nwhen=\"walltime > 'x'\"\nreject='n'": "f.toml, rule `x`: `x` is not a walltime",
    "[[rule]]\nname='x'\nwhen=\"group > 'x'\"\nreject='n'": "f.toml, rule `x`: `group` holds many texts.",
    "[[rule]]\nname='x'\nreject='{usr}'": "f.toml, rule `x`: `reject` has no field for {usr}.",
    "[[rule]]\nname='x'\nreject='n'\nroute='q'": "it rejects the job and does something else with it.",
    "[[rule]]\nname='x'\nallow_types=['a']": "f.toml, rule `x`: `allow_types` needs a `reject`",
    "[[rule]]\nname='x'\nallow_types='a'\nreject='n'": "f.toml, rule `x`: `allow_types` expects a list of texts.",
    "[[rule]]\nname='x'\nset={user='root'}": "f.toml, rule `x`: `user` is nothing to set.",
    "[[rule]]\nname='x'\nset={queue=3}": "f.toml, rule `x`: `set.queue` expects a text.",
    "[[rule]]\nname='x'\nset={hold=1}": "f.toml, rule `x`: `set.hold` expects true or false.",
    "[[rule]]\nname='x'\nset={signal=99}": "f.toml, rule `x`: There is no signal 99.",
    "[[rule]]\nname='x'\nset={walltime=0}": "f.toml, rule `x`: `set.walltime` expects seconds",
    "[[rule]]\nname='x'\nset={name='a/b'}": "f.toml, rule `x`: `a/b` cannot be the name of a job",
    "[[rule]]\nname='x'\nclamp_max={checkpoint=3}": "`clamp_max` is for the walltime, not for `checkpoint`.",
    "[[rule]]\nname='x'\nadd_constraint='a = '": "f.toml, rule `x`: The condition ends too early",
    "[[rule]]\nname='x'\nadd_constraint=\"a IN FILE '/b'\"": "f.toml, rule `x`: Cannot read the condition at `FILE`",
    "[[rule]]\nname='x'\nadd_type='a b'": "f.toml, rule `x`: `a b` is not a job type.",
    "[[example]]\nname='x'": "f.toml, example `x`: say what comes out.",
    "[[example]]\nname='x'\njobs={}": "f.toml, example `x`: there is no `jobs`.",
    "x = " + "[" * 100_000: "this is not TOML",
    "#" * 300_000: "f.toml has 300000 characters",
}


@pytest.mark.parametrize("text", BAD, ids=lambda text: text[-40:].encode().hex()[-60:])
def test_a_bad_rule_is_refused_with_its_file_its_name_and_what_is_wrong(text):
    with pytest.raises(BadRule) as refusal:
        read(text, file="f.toml")
    assert BAD[text] in str(refusal.value)


KEYS = ["when", "reject", "print", "warn", "set", "default", "clamp_max", "route", "add_type", "remove_type",
        "allow_types", "refuse_levels", "add_constraint", "add_constraint_to_groups", "name"]  # fmt: skip
toml_values = st.recursive(
    st.sampled_from(["'a'", "3", "true", "'{user}'", "'{x}'", "\"queue = 'a'\"", "'2:00:00'", "1.5", "''"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda some: f"[{', '.join(some)}]")
        | st.dictionaries(st.sampled_from(["queue", "walltime", "hold", "x"]), inner, max_size=3).map(
            lambda some: "{" + ", ".join(f"{key} = {value}" for key, value in some.items()) + "}"
        )
    ),
    max_leaves=6,
)
toml_rules = st.lists(
    st.dictionaries(st.sampled_from(KEYS), toml_values, max_size=5).map(
        lambda table: "[[rule]]\n" + "\n".join(f"{key} = {value}" for key, value in table.items())
    ),
    max_size=4,
).map("\n".join)


@given(toml_rules | st.text(max_size=200))
def test_whatever_a_file_holds_it_is_read_or_refused_with_a_sentence(text):
    try:
        rules = read(text, file="f.toml").rules
    except BadRule:
        rules = ()
    assert isinstance(apply(rules, job(), RuleContext(properties=PROPERTIES)), RuleAcceptance | RuleRefusal)


settings_ = st.sampled_from([
    ("queue", 'set = { queue = "q" }'), ("project", 'set = { project = "p" }'), ("types", 'add_type = "t"'),
    ("hold", "set = { hold = true }"), ("checkpoint", "default = { checkpoint = 9 }"),
    ("name", 'default = { name = "n" }'),
    ("rule_where", 'add_constraint_after_validation = "mem > 1"'), ("request", 'add_constraint = "mem > 2"'),
    ("request", "clamp_max = { walltime = 60 }"), ("stdout", 'set = { stdout = "o" }'),
])  # fmt: skip
submissions = st.builds(
    job,
    st.sampled_from(["/core=1", "/core=2,walltime=1", "{mem > 3}/core=1"]),
    queue=st.sampled_from([None, "a", "q"]),
    types=st.sampled_from([(), ("t",), ("besteffort", "t")]),
    name=st.sampled_from([None, "me"]),
    kind=st.sampled_from(list(JobKind)),
)


@given(st.lists(settings_, max_size=4), submissions)
def test_a_rule_never_changes_what_it_does_not_name(chosen, submission):
    rules = [one for _, text in chosen for one in rule(text)]
    after = apply(rules, submission, RuleContext(properties=PROPERTIES)).submission
    named = {field for field, _ in chosen}
    changed = {field for field in Submission.__slots__ if getattr(after, field) != getattr(submission, field)}
    assert changed <= named


@given(st.lists(settings_, max_size=4), submissions)
def test_rules_in_two_files_are_rules_in_one(chosen, submission):
    known = RuleContext(properties=PROPERTIES)
    rules = [one for _, text in chosen for one in rule(text)]
    half = apply(rules[:2], submission, known)
    whole = apply(rules, submission, known)
    assert apply(rules[2:], half.submission, known).submission == whole.submission
    assert apply(rules, submission, known) == whole  # the same input, the same output


@given(st.text(max_size=40))
def test_a_condition_of_a_rule_is_read_or_refused(text):
    with contextlib.suppress(BadRule):
        rule(f"when = {json.dumps(text)}\nreject = 'n'")


def test_every_field_can_be_asked_about():
    for name, field in FIELDS.items():
        value = "3" if field.kind is int else "'x'"
        assert isinstance(holds(f"{name} = {value}", JOB, **KNOWN), bool)
