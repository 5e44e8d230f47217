"""`#OAR` lines of a script."""

from typing import Any

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


def test_too_many_or_too_long_lines_are_refused_before_the_split():
    with pytest.raises(TooLong, match=r"has 257 #OAR lines; at most 256"):
        directives.scan("#OAR -n x\n" * 257)
    with pytest.raises(TooLong, match=r"is 20003 bytes long; at most 16384"):
        directives.scan(f"#OAR -n {'x' * 20000}")


OPTIONS = {
    "-l": "resource", "-n": "name", "-q": "queue", "-p": "property", "-d": "directory", "-a": "dependencies",
    "-t": "types", "-O": "stdout", "-E": "stderr", "-k": "use_job_key", "-i": "import_job_key_file",
    "-e": "export_job_key_file", "--import-job-key-inline-priv": "import_job_key_inline",
}  # fmt: skip
MANY = ("resource", "types", "dependencies")
NO_OPTIONS = ("initial_request", "stagein")  # the whole line; and what OAR 3 makes of an option of another name


@pytest.mark.parametrize("case", oar_cases("scan_script"))
def test_the_scripts_of_oars_own_tests_give_what_they_gave_there(case):
    found: dict[str, Any] = {}
    for _, (option, *values) in directives.scan(case["input"]["script"]):
        name = OPTIONS.get(option, option.lstrip("-").replace("-", "_"))
        if name in MANY:
            found.setdefault(name, []).extend(map(type(case["expected"][name][0]), values))
        else:
            found[name] = type(case["expected"].get(name, ""))(values[0] if values else True)
    assert {name: found[name] for name in case["expected"] if name not in NO_OPTIONS} == {
        name: value for name, value in case["expected"].items() if name not in NO_OPTIONS
    }


def test_a_script_may_carry_every_option():
    script = (
        "#A job\n#OAR -l nodes=10,walltime=3600\n#OAR -l gpu=10\n#OAR -q yop\n#OAR -p pa=b\n#OAR --checkpoint 12\n"
        "#OAR -d /tmp/\n#OAR --hold\n#OAR -a 12\n#OAR -a 32\n#OAR -O sto\n#OAR -k\n#OAR --array 10\nprogram"
    )
    test_the_scripts_of_oars_own_tests_give_what_they_gave_there(
        {
            "input": {"script": script},
            "expected": {
                "resource": ["nodes=10,walltime=3600", "gpu=10"], "queue": "yop", "property": "pa=b", "checkpoint": 12,
                "directory": "/tmp/", "hold": True, "dependencies": [12, 32], "stdout": "sto", "use_job_key": True,
                "array": 10,
            },
        }
    )  # fmt: skip
