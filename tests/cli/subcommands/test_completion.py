"""What shells offer behind a command: asked of the shells themselves."""

import contextlib
import os
import pty
import subprocess

import pytest

from oarlock.cli.oarlock import main, options
from oarlock.cli.subcommands.site.completion import offers
from scripts import manual
from tests.waiting import wait_until


@pytest.fixture
def script(capsys, tmp_path):
    """Write the script of a shell to a file, as an administrator does."""

    def written(shell):
        assert main(["completion", shell]) == 0
        path = tmp_path / f"oarlock.{shell}"
        path.write_text(capsys.readouterr().out)
        return path

    return written


def ran(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


CASES = [
    (["oarsub", "--array"], ["--array", "--array-param-file"]),
    (["oarsub", "-l", "core=1", "--sig"], ["--signal"]),
    (["oarprint", "host", "--ver"], ["--version"]),
    (["oarlock", "to"], ["token"]),
    (["oarlock", "quotas", "re"], ["remove"]),
    (["oarlock", "quotas", "add", "--ho"], ["--hours"]),
    (["oarlock", "completion", "--he"], ["--help"]),
]


@pytest.mark.component("bash")
@pytest.mark.parametrize(("words", "offered"), [*CASES, (["oarsub", ""], [])])
def test_bash_offers_options_and_subcommands(script, words, offered):
    given = " ".join(f"'{word}'" for word in words)
    ask = f"COMP_WORDS=({given}) COMP_CWORD={len(words) - 1}; _oarlock_complete"
    show = '[[ ${#COMPREPLY[@]} == 0 ]] || printf "%s\\n" "${COMPREPLY[@]}"'
    assert ran("bash", "-c", f". {script('bash')}; {ask}; {show}") == offered


@pytest.mark.component("fish")
def test_fish_offers_options_and_subcommands_with_their_meaning(script):
    path = script("fish")
    asked = "; ".join(f"complete -C '{' '.join(words)}'; echo ==" for words, _ in CASES)
    answers = "\n".join(ran("fish", "--no-config", "-c", f"source {path}; {asked}")).split("==\n")
    shown = [[line.split("\t") for line in answer.removesuffix("==").splitlines()] for answer in answers]
    assert [[line[0] for line in lines] for lines in shown] == [offered for _, offered in CASES]
    assert shown[0][0] == ["--array", "submit an array of so many jobs"]


@pytest.mark.component("zsh")
def test_zsh_knows_what_can_follow_each_command(script):
    path = script("zsh")
    ask = 'autoload -Uz compinit; compinit -D -u; source "$1"; print $_comps[oarsub] $_comps[oarlock]'
    show = 'offered=(); _oarlock_words "oarlock quotas"; print -rl -- $offered'
    first, *offered = ran("zsh", "-f", "-c", f"{ask}; {show}", "zsh", str(path))
    assert first == "_oarlock _oarlock"
    assert "remove:take such a quota back (administrators)" in offered
    assert "--at:what holds then, by the calendar: YYYY-MM-DD [hh:mm:ss], local time" in offered


@pytest.mark.component("zsh")
def test_zsh_completes_what_is_typed_at_its_prompt(script):
    path = script("zsh")
    terminal, inner = pty.openpty()
    shell = subprocess.Popen(
        ["zsh", "-f", "-i"], stdin=inner, stdout=inner, stderr=inner, env={**os.environ, "TERM": "dumb"},
        start_new_session=True,
    )  # fmt: skip
    os.close(inner)
    os.set_blocking(terminal, False)
    shown = b""

    def shows(text):
        nonlocal shown
        with contextlib.suppress(BlockingIOError):
            shown += os.read(terminal, 65536)
        return text in shown

    try:
        os.write(terminal, f"autoload -Uz compinit; compinit -D -u; source {path}; print re''ady\n".encode())
        wait_until(lambda: shows(b"ready"), "the prompt")
        for typed, completed in (
            (b"oarsub --array-p", b"--array-param-file "),
            (b"oarlock quotas re", b"quotas remove "),
        ):
            os.write(terminal, b"\x15" + typed + b"\t")
            wait_until(lambda text=completed: shows(text), typed.decode())
    finally:
        shell.kill()
        shell.wait()
        os.close(terminal)


def test_every_command_and_each_of_its_options_is_offered():
    offered = offers(options())
    assert {*manual.COMMANDS, "oarlock"} == {path for path in offered if " " not in path}
    for command in manual.COMMANDS:
        names = [name for option in manual.options(command).all for name in option.names]
        assert [word.name for word in offered[command]] == names, command


def test_a_shell_that_is_not_known_is_refused(capsys):
    assert main(["completion", "tcsh"]) == 2
    assert "SHELL cannot be `tcsh`" in capsys.readouterr().err
