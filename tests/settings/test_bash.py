"""Settings as bash reads them: compared with a real bash, and refused where bash would do more than assign."""

import contextlib
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from oarlock.model.errors import ConfigRefused, OarlockError
from oarlock.settings.bash import BashAssignment, assignments

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])


def read(text):
    return assignments(text, file="oar.conf")


def values(text):
    return {found.name: found.value for found in read(text)}


def as_bash_reads(text, names):
    """Source the text in a real bash, in an empty folder, and give the variables of these names."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "oar.conf").write_text(text)
        ran = subprocess.run(
            ["bash", "--norc", "--noprofile", "-c", "set -a; source ./oar.conf || exit 9; exec /usr/bin/env -0"],
            cwd=folder, env={}, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=True,
        )  # fmt: skip
        assert ran.stderr == b""
        assert [path.name for path in Path(folder).iterdir()] == ["oar.conf"]
    variables = dict(entry.split("=", 1) for entry in ran.stdout.decode().split("\0") if entry)
    return {name: variables[name] for name in names if name in variables}


NAMES = ("K_A", "K_B", "K_C", "_d9")
PLAIN = st.text(alphabet="abzAZ09_-+=:,./@%^*?!#[]}é→", min_size=1, max_size=6)
ANYTHING = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"), max_size=8)
ESCAPE = st.characters(min_codepoint=32, max_codepoint=126).map(lambda c: f"\\{c}")
REFERENCE = st.sampled_from(NAMES).flatmap(lambda name: st.sampled_from([f"${name}", f"${{{name}}}"]))
CONTINUATION = st.just("\\\n")
SINGLE = ANYTHING.map(lambda text: "'" + text.replace("'", "") + "'")
IN_DOUBLE = st.text(alphabet="ab #;&|<>()'~{}*\n\t=é", max_size=6)
DOUBLE = st.lists(IN_DOUBLE | ESCAPE | REFERENCE | CONTINUATION | st.just("$ ")).map(lambda p: '"' + "".join(p) + '"')
WORD = st.lists(PLAIN | SINGLE | DOUBLE | ESCAPE | REFERENCE | CONTINUATION, max_size=5).map("".join)
BLANK = st.sampled_from([" ", "\t", "  ", " \\\n "])
ONE = st.builds(lambda name, word: f"{name}={word}", st.sampled_from(NAMES), WORD)
MANY = st.builds(lambda blank, some: blank.join(some), BLANK, st.lists(ONE, min_size=1, max_size=3))
COMMENT = ANYTHING.map(lambda text: "#" + text.replace("\n", " "))
LINE = st.builds(
    lambda indent, start, body, end: f"{indent}{start}{body}{end}\n",
    st.sampled_from(["", "  ", "\t"]), st.sampled_from(["", "export "]), MANY, st.just("") | COMMENT.map(" {}".format),
) | COMMENT.map("{}\n".format) | st.just("\n")  # fmt: skip
FIRST = "".join(f"{name}=''\n" for name in NAMES)
FILES = st.lists(LINE, max_size=6).map(lambda lines: FIRST + "".join(lines))


@pytest.mark.manual(155)
@pytest.mark.component("bash")
@SLOW
@given(FILES)
def test_a_file_of_assignments_means_the_same_to_us_and_to_bash(text):
    try:
        ours = values(text)
    except ConfigRefused:
        assume(False)
    assert ours == as_bash_reads(text, NAMES)


# Every character that means something to bash, and names that are no commands: whatever of it we take for
# assignments, bash may run.
SHELLISH = st.text(alphabet="AAABBB====''\"\"\\\\$${}  \n\n\t#~:;&|()<>`[]+!1*-", max_size=30)


@pytest.mark.component("bash")
@settings(SLOW, max_examples=100)
@given(SHELLISH.map(lambda noise: f"A=1\nB={noise}\n") | SHELLISH.map(lambda noise: f"A=a B=b\nexport A={noise}"))
@example("A=1\nB=x:\\\n~\n")
@example("A=1\nexport A=2 B=$A\n")
@example("A=1 B=$A\n")
@example("export A={1,2}\n")
@example("A=b=~\n")
@example("A='1'#2 # 3\n")
@example('A="\\a\\$\\"\\\\"\n')
def test_what_we_accept_means_the_same_to_bash(text):
    try:
        ours = values(text)
    except ConfigRefused:
        return
    assert ours == as_bash_reads(text, [found.name for found in read(text)])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A=", ""),
        ("A=1", "1"),
        ("  A=1  # one", "1"),
        ("A=1#2", "1#2"),
        ("A='a b'c", "a bc"),
        ('A="it\'s"', "it's"),
        ('A="a\\"b\\n"', 'a"b\\n'),
        ("A=a\\ b", "a b"),
        ("A=a\\\nb", "ab"),
        ("A='a\\\nb'", "a\\\nb"),
        ("export A=1", "1"),
        ('A="cost: 5$"', "cost: 5$"),
        ("A=x~y", "x~y"),
        ("A={a,b}", "{a,b}"),
    ],
)
def test_one_value(text, value):
    assert values(text) == {"A": value}


def test_references_see_what_is_assigned_above():
    assert values('A=/opt\nB="$A/bin:${A}/sbin"\nA=/usr\n') == {"A": "/usr", "B": "/opt/bin:/opt/sbin"}


def test_every_assignment_knows_its_line():
    text = "# first\nA=1\n\nB='two\nlines' C=3 \\\n  D=4\nE=5"
    assert read(text) == [
        BashAssignment("A", "1", 2),
        BashAssignment("B", "two\nlines", 4),
        BashAssignment("C", "3", 5),
        BashAssignment("D", "4", 6),
        BashAssignment("E", "5", 7),
    ]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("A=$(id)", r"`\$\(` would be computed by bash"),
        ("A=`id`", "` runs a command"),
        ('A="`id`"', "` runs a command even in double quotes"),
        ('A="$(id)"', r"`\$\(` would be computed"),
        ("A=1; B=2", "`;` separates commands"),
        ("A=1 && id", "`&&` is not NAME=value"),
        ("A=1&&id", "`&` runs commands"),
        ("A=1|id", "`[|]` runs commands"),
        ("A=1>x", "`>` writes a file"),
        ("A=<x", "`<` reads a file"),
        ("A=(1 2)", "makes an array"),
        ("A[0]=1", r"A\[…\] is an array"),
        ("A+=1", r"A\+= adds to a value"),
        ("f() { id; }", "`f[(][)]` is not NAME=value"),
        ("A = 1", "blanks around the = of A"),
        ("A=1 id", "`id` is not NAME=value; bash would run it"),
        ("source /etc/other", "`source` is not NAME=value"),
        ("A=~/x", "home directory"),
        ("A=/x:~/y", "home directory"),
        ("A=$'x'", r"quotes \$' are not understood"),
        ("A=$$", r"`\$\$` would be computed"),
        ("A=$1", r"`\$1` would be computed"),
        ("A=${B:-1}", r"Only \$\{NAME\}"),
        ("A=$B", r"\$B is not assigned above"),
        ("A='x", "opened and never closed"),
        ('A="x', "opened and never closed"),
        ("A=x\\", "ends in a backslash"),
        ("export A={1,2}", "`{` after `export`"),
        ("A=1\r\n", "Windows"),
        ("A=\x01", "control character"),
    ],
)
def test_what_bash_would_run_or_compute_is_refused_with_its_line(bad, reason):
    with pytest.raises(ConfigRefused, match=rf"^oar\.conf, line 2: .*{reason}") as refused:
        read(f"# a comment\n{bad}")
    assert refused.value.hint


def test_values_cannot_grow_by_referring_to_each_other():
    bomb = "A=" + "x" * 1000 + "\n" + "A=$A$A$A$A\n" * 30
    with pytest.raises(ConfigRefused, match=r"line 6: .*grow too long"):
        read(bomb)


def test_a_file_that_is_no_settings_file_by_its_length_is_refused():
    with pytest.raises(ConfigRefused, match="longer than 256 KiB"):
        read("A=1\n" * 100_000)


@settings(deadline=None)  # the CPU's time is what counts; a busy machine takes longer
@given(st.text() | SHELLISH)
def test_any_text_is_read_or_refused_and_quickly(text):
    # The best of three: Python may clean up its memory in the middle of any one.
    assert min(_seconds(text) for _ in range(3)) < 0.1


def _seconds(text: str) -> float:
    before = time.process_time()
    with contextlib.suppress(OarlockError):
        read(text)
    return time.process_time() - before
