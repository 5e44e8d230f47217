"""The page on admission rules says what is so."""

import asyncio
import re
from pathlib import Path

import pytest

from oarlock.job.admission.rules import RuleSource
from oarlock.job.admission.stored_rules import run_examples
from oarlock.lang.rules import FIELDS, read
from oarlock.lang.rules.parse import KEYS
from oarlock.server.rules.python_rules import run

PAGE = (Path(__file__).parents[2] / "docs" / "running-a-site" / "admission-rules.md").read_text()


def block(kind: str) -> str:
    [found] = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return found


def test_the_rule_of_the_page_does_what_its_example_says():
    file = read(block("toml"), file="page.toml")
    assert [one.differs for one in run_examples(RuleSource("page", 1, file.rules, file.examples))] == [""]


@pytest.mark.manual(120)
def test_every_field_is_explained_as_the_code_does():
    listed = re.findall(r"^\| `(\w+)`( \*)? \| (.*) \|$", PAGE.partition("<!-- fields -->")[2], re.MULTILINE)
    assert listed[: len(FIELDS)] == [(name, " *" if one.many else "", one.says) for name, one in FIELDS.items()]


def test_every_key_of_a_rule_is_explained():
    section = PAGE.partition("## What a rule can do")[2].partition("\n## ")[0]
    assert {key for key in KEYS if f"`{key}" not in section} == {"name", "when"}


def test_the_python_rule_of_the_page_works(tmp_path: Path):
    tmp_path.chmod(0o755)
    (tmp_path / "rule.py").write_text(block("python"))
    asked = {"job": {"types": [], "project": "course 3", "resources": []}, "context": {"user": "ada"}}
    ruling = asyncio.run(run(tmp_path / "rule.py", asked, top=tmp_path))
    assert ruling.job == {**asked["job"], "queue": "course"}
    assert ruling.messages == ("The job goes to the queue of the course.",)
    asked["job"]["resources"] = ["nodes=1"] * 9
    assert asyncio.run(run(tmp_path / "rule.py", asked, top=tmp_path)).reject == "Eight alternatives are enough."
