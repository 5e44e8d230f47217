"""The rules that are shipped: every example beside them comes out, and every rule has one that shows it at work."""

import pytest

from oarlock.job.admission.rules import OPTIONAL, SHIPPED, RuleSource, sources
from oarlock.job.admission.stored_rules import run_examples
from oarlock.lang.rules import RuleExample, read

ALL = [*sources(None), *sources(OPTIONAL, shipped=None)]


def _short(value: RuleSource | int) -> str:
    return value.name if isinstance(value, RuleSource) else str(value)


@pytest.mark.manual(8)
@pytest.mark.parametrize(
    "one",
    [one for source in ALL for one in run_examples(source)],
    ids=lambda one: f"{one.example.file}: {one.example.name}",
)
def test_an_example_comes_out_as_it_says(one):
    assert one.differs == ""


@pytest.mark.parametrize(
    ("source", "place"), [(source, place) for source in ALL for place in range(len(source.rules))], ids=_short
)
def test_no_rule_could_be_left_out_without_an_example_noticing(source: RuleSource, place: int):
    others = source.rules[:place] + source.rules[place + 1 :]
    without = RuleSource(source.name, source.priority, others, source.examples)
    assert any(one.differs for one in run_examples(without)), source.rules[place].name


@pytest.mark.manual(119)
def test_a_rule_file_is_shipped_for_each_of_the_manuals_examples():
    assert {path.name for path in SHIPPED.rglob("*.toml")} >= {
        "01-default-queue.toml", "04-admin-queue.toml", "12-interactive.toml", "13-default-walltime.toml",
        "20-users-of-a-file.toml",
    }  # fmt: skip


DIFFERS = [
    ("gives = { queue = 'other' }", "queue is 'default', not 'other'"),
    ("gives = { quue = 'x' }", "`quue` is nothing that comes out; Did you mean `queue`?"),
    ("refused = 'x'", "it is let in"),
    ("job = { name = 'a/b' }\ngives = {}", "the job cannot be made: `a/b` cannot be the name of a job: it holds `/`."),
    ("given = { usr = 'a' }\ngives = {}", "the job cannot be made: `usr` is nothing that is given."),
    ("given = { user = 'eve' }\ngives = {}", "refused by rule `no eve`: go away"),
    ("given = { user = 'eve' }\nrefused = 'come in'", "refused by rule `no eve`: go away"),
]


@pytest.mark.parametrize(("text", "differs"), DIFFERS)
def test_an_example_that_comes_out_otherwise_says_how(text, differs):
    file = read(
        "[[rule]]\nname = 'q'\ndefault = { queue = 'default' }\n"
        "[[rule]]\nname = 'no eve'\nwhen = \"user = 'eve'\"\nreject = 'go away'\n"
        f"[[example]]\nname = 'e'\n{text}\n",
        file="f.toml",
    )
    [one] = run_examples(RuleSource("f.toml", 1, file.rules, file.examples))
    assert isinstance(one.example, RuleExample)
    assert one.differs == differs
