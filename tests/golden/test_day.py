"""A day of commands, as its page tells it, happens again on a live instance."""

import re

import pytest

from tests.bed import needs_root, open_directory
from tests.golden.day import PAGE, Day, DayStep, compare, put_programs, steps
from tests.golden.live import site
from tests.test_checklist import DIFFERENCES, differences


@needs_root
@pytest.mark.component("sshd")
@pytest.mark.manual(1, 2, 3, 4, 12, 20, 29, 50, 51, 53, 59, 61, 63, 64, 66, 69, 72, 77, 82, 83, 87, 90)
def test_the_day_of_the_page_happens_again():
    with site(kind=Day) as day, open_directory() as folder:
        programs = put_programs(folder / "bin")
        for step in steps(PAGE.read_text()):
            if step.user:
                assert not (problem := compare(step, day.shell(step.user, step.line, programs))), problem
            else:
                day.wait_for(step.thing, step.state)


def test_every_surprise_of_the_day_stands_on_the_page_of_differences():
    named = [
        name
        for line in re.findall(r"^Differs: (.*)$", PAGE.read_text(), re.MULTILINE)
        for name in re.findall(r"\*\*(.+?)\*\*", line)
    ]
    text = DIFFERENCES.read_text()
    rows = {*differences(), *re.findall(r"^## (.*)$", text, re.MULTILINE)}
    firsts = re.findall(r"^\| (`\w+`.*?) \|", text, re.MULTILINE)
    of_records = {name for first in firsts for name in re.findall(r"`(\w+)`", first)}
    assert len(named) > 10
    assert [name for name in named if name not in rows | of_records] == []


def test_another_output_or_one_line_more_is_noticed():
    [step] = steps("```\nalice$ oarstat\nJob …\n2030-05-06 10:00:00 R\n```\n")
    assert step == DayStep("alice", "oarstat", ("Job …", "2030-05-06 10:00:00 R"))
    assert compare(step, "Job 3\n2026-01-01 11:11:11   R\n") == ""
    assert "but it printed" in compare(step, "Job 3\n2026-01-01 11:11:11 W\n")
    assert "but it printed" in compare(step, "Job 3\n2026-01-01 11:11:11 R\nmore\n")
