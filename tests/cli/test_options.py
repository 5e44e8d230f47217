"""The hand-made option parser: GNU's rules, and refusals that help."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.cli.exit_codes import EXIT_CODES, exit_code
from oarlock.cli.options import CommandOptions, help_text
from oarlock.client import RequestRefused

OPTIONS = CommandOptions("oarx", "Do x.", usage=("[OPTION]... WORD",))
OPTIONS.flag("-f --full", "everything")
OPTIONS.text("-n --name=NAME", "a name")
OPTIONS.text("-l --resource=REQUEST", "what is needed", many=True)
OPTIONS.number("-a --anterior=JOB", "after this", many=True)
OPTIONS.maybe("-u --user=USER", "whose")
OPTIONS.number("--delete-before=SECONDS", "older")
OPTIONS.text("-z=WORD", "only short")
OPTIONS.end()


@pytest.mark.parametrize(
    ("words", "values", "rest"),
    [
        ([], {}, []),
        (["a", "b"], {}, ["a", "b"]),
        (["-f"], {"full": []}, []),
        (["-fn", "x"], {"full": [], "name": ["x"]}, []),
        (["-nx"], {"name": ["x"]}, []),
        (["-n=x"], {"name": ["x"]}, []),
        (["-n", "-x"], {"name": ["-x"]}, []),
        (["--name=x=y"], {"name": ["x=y"]}, []),
        (["--name="], {"name": [""]}, []),
        (["--name", "x"], {"name": ["x"]}, []),
        (["--na", "x"], {"name": ["x"]}, []),
        (["-l", "a", "--resource=b"], {"resource": ["a", "b"]}, []),
        (["-a1", "-a", "2"], {"anterior": ["1", "2"]}, []),
        (["cmd", "-f", "arg"], {"full": []}, ["cmd", "arg"]),
        (["-f", "--", "-n", "--"], {"full": []}, ["-n", "--"]),
        (["-"], {}, ["-"]),
        (["-u"], {"user": []}, []),
        (["-u", "ada"], {"user": ["ada"]}, []),
        (["-u", "-f"], {"user": [], "full": []}, []),
        (["-uada"], {"user": ["ada"]}, []),
        (["--user=ada", "x"], {"user": ["ada"]}, ["x"]),
        (["--delete_before", "7"], {"delete_before": ["7"]}, []),
        (["-z", "w"], {"z": ["w"]}, []),
    ],
)
def test_a_command_line_is_read_as_gnu_does(words, values, rest):
    asked = OPTIONS.parse(words)
    assert (asked.values, asked.words) == (values, rest)


def test_values_have_their_kinds():
    asked = OPTIONS.parse(["-n", "x", "-n", "y", "-a", "1", "-a", "02"])
    assert (asked.text("name"), asked.texts("name"), asked.numbers("anterior"), asked.number("anterior")) == (
        "y", ["x", "y"], [1, 2], 2
    )  # fmt: skip
    assert (asked.text("user"), asked.number("delete_before"), asked.texts("resource")) == (None, None, [])


@pytest.mark.parametrize(
    ("words", "sentence", "hint"),
    [
        (["--nmae"], "There is no option --nmae.", "Did you mean --name?"),
        (["--bogus"], "There is no option --bogus.", "`oarx --help` lists them."),
        (["-fq"], "There is no option -q.", "`oarx --help` lists them."),
        (["--full=1"], "--full takes no value, but `1` was given.", "Write --full alone."),
        (["-n"], "-n needs a value.", "Write -n, --name=NAME."),
        (["--name"], "--name needs a value.", "Write -n, --name=NAME."),
        (["-a", "x"], "-a takes a whole number, not `x`.", "Write -a, --anterior=JOB."),
        (["-a", "-1"], "-a takes a whole number, not `-1`.", "Write -a, --anterior=JOB."),
        (
            ["-n", "caf\udce9"],
            "`caf\\udce9` is not valid UTF-8.",
            "Type it anew, or look at the locale of your terminal.",
        ),
        (["-a", "٣"], "-a takes a whole number, not `٣`.", "Write -a, --anterior=JOB."),
    ],
)
def test_what_is_no_option_is_refused_with_a_way_out(words, sentence, hint):
    with pytest.raises(RequestRefused) as refused:
        OPTIONS.parse(words)
    assert (str(refused.value), refused.value.hint, refused.value.kind) == (sentence, hint, "BadOption")


def test_a_name_that_is_cut_too_short_is_refused_with_all_it_could_be():
    options = CommandOptions("x", "", usage=())
    options.flag("--stdout", "")
    options.flag("--stderr", "")
    options.flag("--std", "")
    assert options.parse(["--std"]).values == {"std": []}
    with pytest.raises(RequestRefused, match=r"--st could be any of --stdout, --stderr, --std\."):
        options.parse(["--st"])


@given(st.lists(st.text(max_size=8), max_size=6))
def test_any_words_are_read_or_refused(words):
    with contextlib.suppress(RequestRefused):
        asked = OPTIONS.parse(words)
        assert len(asked.words) <= len(words)


@given(st.lists(st.text(max_size=8), max_size=6))
def test_behind_two_dashes_every_word_stays_as_it_is(words):
    assert OPTIONS.parse(["--", *words]).words == words


def test_help_explains_every_option():
    assert help_text(OPTIONS) == (
        "Usage: oarx [OPTION]... WORD\n"
        "\n"
        "Do x.\n"
        "\n"
        "Options:\n"
        "  -f, --full                  everything\n"
        "  -n, --name=NAME             a name\n"
        "  -l, --resource=REQUEST      what is needed; may be given several times\n"
        "  -a, --anterior=JOB          after this; may be given several times\n"
        "  -u, --user[=USER]           whose\n"
        "      --delete-before=SECONDS\n"
        "                              older\n"
        "  -z WORD                     only short\n"
        "      --server=ADDRESS        the server: the path of its socket, or http://NAME:PORT\n"
        "                              ($OARLOCK_SERVER)\n"
        "  -h, --help                  show this help and exit\n"
        "  -V, --version               show the version and exit\n"
    )


def test_every_command_has_a_code_for_all_else_and_for_no_server():
    codes = {command: (exit_code(command, "Whatever"), exit_code(command, "ServerDown")) for command in EXIT_CODES}
    assert codes.pop("oarsub") == (8, 9)
    assert codes.pop("oarsh") == (255, 255)  # as ssh
    assert set(codes.values()) == {(1, 2)}
