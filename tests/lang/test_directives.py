"""`#OAR` lines of a script."""

import pytest

from oarlock.lang import directives
from oarlock.lang.directives import Directive
from oarlock.model.errors import SyntaxRefused, TooLong
from tests.lang.cases import oar_cases


def test_every_oar_line_is_found_wherever_it_stands():
    script = "#!/bin/sh\n#OAR -l nodes=2,walltime=1\n# a comment\necho hello\n#OAR\t-n late\n"
    assert directives.scan(script) == [Directive(2, ["-l", "nodes=2,walltime=1"]), Directive(5, ["-n", "late"])]


def test_words_are_split_as_a_shell_would_with_no_comments():
    script = "#OAR -p \"host = 'a b'\" -n it\\'s#1 # two ''\n"
    assert directives.scan(script) == [Directive(1, ["-p", "host = 'a b'", "-n", "it's#1", "#", "two", ""])]


def test_lines_of_a_windows_editor_lose_their_carriage_return():
    assert directives.scan("#!/bin/sh\r\n#OAR -n x\r\n#OAR\r\n") == [Directive(2, ["-n", "x"])]


def test_lines_that_only_look_like_directives_are_left_alone():
    assert directives.scan("#!/bin/sh\n #OAR -n x\n#OARLOCK -n x\n# OAR -n x\n#oar -n x\n#OAR\n") == []


@pytest.mark.parametrize("script", ["", "echo hello\n#OAR -n x\n", "\x7fELF\n#OAR -n x\n"])
def test_a_file_that_does_not_begin_with_a_hash_is_no_script(script):
    with pytest.raises(SyntaxRefused, match="expected a first line that begins with `#`"):
        directives.scan(script)


@pytest.mark.parametrize(
    ("line", "at", "expected"),
    [
        ("#OAR -n 'it", 8, "a second ' to close this"),
        ('#OAR -n "a\\" b', 8, 'a second " to close this'),
        ("#OAR 'a' \"b\" \\c '", 16, "a second ' to close this"),
        ("#OAR -n x\\", 9, "a character behind the backslash"),
    ],
)
def test_an_open_quote_is_shown_with_its_line(line, at, expected):
    with pytest.raises(SyntaxRefused, match=r"^Line 3 of the script cannot be split") as refusal:
        directives.scan(f"#!/bin/sh\n#OAR -n fine\n{line}\n")
    assert (refusal.value.text, refusal.value.at, refusal.value.expected) == (line, at, expected)


def test_too_many_lines_and_too_long_lines_are_refused_before_they_are_split():
    with pytest.raises(TooLong, match=r"has 257 #OAR lines; at most 256"):
        directives.scan("#OAR -n x\n" * 257)
    with pytest.raises(TooLong, match=r"is 20003 bytes long; at most 16384"):
        directives.scan(f"#OAR -n {'x' * 20000}")


@pytest.mark.parametrize("case", oar_cases("scan_script"))
def test_the_scripts_of_oars_own_tests_give_what_they_gave_there(case):
    options = {"-l": "resource", "-n": "name", "--project": "project"}
    found = {}
    for _, (option, value) in directives.scan(case["input"]["script"]):
        found[options[option]] = [value] if option == "-l" else value
    assert found == case["expected"]
