"""Every statement of OAR's manual has a test that names it, and every difference stands on its page."""

import ast
import re
from collections import defaultdict
from pathlib import Path

from tests.checklist import PORTAL, Statement, lines, problems, statements

ROOT = Path(__file__).resolve().parent.parent
DIFFERENCES = ROOT / "docs" / "reference" / "differences.md"


def marked(text: str) -> set[int]:
    """Return the numbers that the tests of a file name."""
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    return {
        number.value
        for call in calls
        if ast.unparse(call.func) == "pytest.mark.manual"
        for number in call.args
        if isinstance(number, ast.Constant) and isinstance(number.value, int)
    }


def everywhere() -> dict[int, list[str]]:
    """Return the files whose tests name each number."""
    found: dict[int, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text()
        for number in marked(text) if "mark.manual" in text and path != Path(__file__) else ():
            found[number].append(path.name)
    return found


def test_each_of_the_206_statements_stands_on_the_page_once():
    assert [statement.number for statement in statements()] == list(range(1, 207))
    assert {statement.number for statement in statements() if statement.remark == PORTAL} == {92, 93}


def test_every_statement_of_the_manual_has_a_test_that_names_it():
    of_others = {statement.number for statement in statements() if statement.remark == PORTAL}
    named = everywhere()
    assert set(range(1, 207)) - named.keys() - of_others == set()
    assert named.keys() - set(range(1, 207)) == set(), "there is no such statement"


def differences() -> dict[str, str]:
    """Return the rows of the page of differences by their first words, which are bold, or by their record."""
    page = DIFFERENCES.read_text()
    rows = {row[1]: row[0] for row in re.finditer(r"^\| \*\*(.+?)\*\*: .*\|$", page, re.MULTILINE)}
    of_records = page.partition("## Records of something else")[2]
    return rows | {row[1]: row[0] for row in re.finditer(r"^\| `(\w.*?)`.*\|$", of_records, re.MULTILINE)}


def test_every_difference_of_the_page_has_a_reason_and_a_test_that_exists():
    for title, row in differences().items():
        what, why, tests = (cell.strip() for cell in row.strip("|").split(" | "))
        assert what, title
        assert why, title
        places = re.findall(r"`([\w/]+\.py)::(\w+)`", tests)
        assert places, f"no test: {title}"
        for file, name in places:
            assert f"def {name}(" in (ROOT / "tests" / file).read_text(), f"{title}: {file}::{name}"


def test_the_page_of_differences_begins_with_what_is_noticed_first():
    assert list(differences())[:5] == [
        "No MySQL",
        "Rules are not written in Perl",
        "`oarproperty -a type`",
        "Who may suspend",
        "An export file that is overwritten",
    ]


def test_statements_that_differ_name_a_row_of_the_page_of_differences():
    rows = differences()
    assert [s for s in statements() if s.remark not in ("", PORTAL) and s.differs not in rows] == []


def test_a_statement_without_a_test_or_with_a_failed_one_is_a_problem():
    listed = [Statement(n, text, "") for n, text in enumerate(("shown", "failed", "left out", "nobody's"), 1)]
    listed.append(Statement(5, "a page", PORTAL))
    results = {1: {"a": "passed", "b": "skipped"}, 2: {"a": "passed", "b": "failed"}, 3: {"a": "skipped"}, 9: {}}
    assert problems(listed, results) == [
        "Statement 2 is not shown (failed, passed): failed",
        "Statement 3 is not shown (skipped): left out",
        "No test names statement 4: nobody's",
        "There is no statement 9.",
    ]
    assert lines(listed, results) == [
        "  1 | shown | a | passed",
        "  1 | shown | b | skipped",
        "  2 | failed | a | passed",
        "  2 | failed | b | failed",
        "  3 | left out | a | skipped",
        "  4 | nobody's | - | NO TEST",
        "  5 | a page | - | portal",
    ]


def test_numbers_are_found_where_tests_name_them():
    assert marked("import pytest\n@pytest.mark.manual(1, 22)\ndef test_a(): ...\nx = pytest.mark.manual(3)") == {
        1,
        3,
        22,
    }
