"""oaradmissionrules: the rules in the table, changed by administrators while the server runs."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from oarlock.cli.cluster import oaradmissionrules
from oarlock.job.admission import stored_rules
from oarlock.model.event import EventType
from oarlock.settings.kinds import PerlRules
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.site import administration
from oarlock.store.tables import event_logs
from tests.clusters import NOW, add_nodes
from tests.web.nodeless_server import Running, running

RULE = '[[rule]]\nname = "no sleep"\nwhen = "command = \'sleep\'"\nreject = "Sleep at home."\n'
EXAMPLE = RULE + '[[example]]\nname = "sleeps"\njob = { command = "sleep" }\nrefused = "Sleep"\n'
WRONG = EXAMPLE.replace('refused = "Sleep"', 'gives = { queue = "default" }')
PERL = 'die("nobody\\n") if ($user eq "eve");'

Run = Callable[..., int]


@pytest.fixture
def server(database: Database) -> Iterator[Running]:
    database.write(lambda tx: add_nodes(tx, ["node1"]) and None)
    with running(database, job_min_uid=0) as made:
        yield made


@pytest.fixture
def command(server: Running, monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["oaradmissionrules", *words])
        return oaradmissionrules.main()

    monkeypatch.setenv("OARLOCK_SERVER", str(server.socket))
    return run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rule.toml"
    path.write_text(EXAMPLE)
    return path


def test_a_rule_of_a_file_holds_at_once_until_it_is_off(server: Running, command: Run, file: Path, capfd):
    assert command("-n", "-r", str(file), "-P", "20") == 0
    assert capfd.readouterr().out == "Rule 1 is stored.\n"
    with server.core.database.read() as tx:
        assert administration.enabled_rules(tx) == [(1, EXAMPLE, 20)]
    assert command("-m", "1", "-N") == 0
    with server.core.database.read() as tx:
        assert administration.enabled_rules(tx) == []
    assert command("-d", "1") == 0
    capfd.readouterr()
    assert command("-S") == 0
    assert capfd.readouterr().out == ""


def test_rules_are_shown_and_written_to_files(command: Run, file: Path, tmp_path: Path, capfd, monkeypatch):
    command("-n", "-r", str(file))
    command("-n", "-r", str(file), "-N", "-P", "7")
    capfd.readouterr()
    assert command("-S", "-I") == 0
    assert capfd.readouterr().out == "1\n2\n"
    assert command("-S", "-N", "-I") == 0
    assert capfd.readouterr().out == "2\n"
    assert command("-s", "2") == 0
    head = "------\nRule     : 2\nPriority : 7\nEnabled  : NO\n------\n"
    assert capfd.readouterr().out == head + "no sleep\n"
    assert command("-s", "1", "-H") == 0
    assert capfd.readouterr().out == EXAMPLE
    monkeypatch.chdir(tmp_path)
    assert command("-S", "-w") == 0
    assert (tmp_path / "rule2.toml").read_text() == EXAMPLE
    assert command("-S", "-w", "one.toml") == 1
    assert "do not fit into one file" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (WRONG, "The example `sleeps` comes out otherwise"),
        ("[[rule]", "this is not TOML"),
        ("", "There is no [[rule]]"),
        ("[[rule]]\nname = 'x'\nbad = 1", "there is no `bad`"),
        (PERL, "written in Perl"),
    ],
)
def test_a_rule_that_would_not_work_is_not_stored(server: Running, command: Run, file: Path, capfd, text, says):
    file.write_text(EXAMPLE)
    command("-n", "-r", str(file))
    file.write_text(text)
    assert command("-n", "-r", str(file)) == 1
    assert says in capfd.readouterr().err
    assert command("-m", "1", "-r", str(file)) == 1
    assert says in capfd.readouterr().err
    with server.core.database.read() as tx:
        assert [row.text for row in administration.all_rules(tx)] == [EXAMPLE]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "There must be one of -S, -s, -n, -m and -d."),
        (("-S", "-n"), "There must be one of"),
        (("-s", "9"), "There is no rule 9 in the table."),
        (("-d", "9"), "There is no rule 9 in the table."),
        (("-m", "9", "-Y"), "There is no rule 9 in the table."),
        (("-m", "x", "-Y"), "`x` is not the number of a rule."),
        (("-m", "1"), "What shall change of rule 1?"),
        (("-n", "-r", "/nonexistent"), "/nonexistent cannot be read"),
        (("-n", "-r", "/nonexistent", "-Y", "-N"), "-Y and -N say the opposite."),
        (("-n", "-e", "/nonexistent/editor"), "The editor `/nonexistent/editor` cannot be run"),
        (("-n",), "There is no terminal to edit a rule in."),
        (("-n", "-e", "false"), "The editor `false` ended with 1."),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(command: Run, capfd, monkeypatch, words, says):
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    assert command(*words) == 1
    shown = capfd.readouterr()
    assert says in shown.err
    assert shown.out == ""


def test_an_editor_changes_the_text(server: Running, command: Run, file: Path, tmp_path: Path):
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/at home/elsewhere/" "$1"\n')
    editor.chmod(0o755)
    command("-n", "-r", str(file))
    assert command("-m", "1", "-e", str(editor)) == 0
    with server.core.database.read() as tx:
        assert "Sleep elsewhere." in administration.all_rules(tx)[0].text


@pytest.mark.manual(120)
def test_perl_rows_are_switched_off_with_an_event_and_shown(server: Running, command: Run, capfd):
    manual = 'if (not defined($queue_name)) { $queue_name="default"; }'

    def old(tx: Tx) -> list[int]:
        for text in (manual, PERL, RULE):
            administration.add_rules(tx, text)
        return stored_rules.disable_perl(tx, now=NOW)

    assert server.core.database.write(old) == [2]
    with server.core.database.read() as tx:
        assert [row.enabled for row in administration.all_rules(tx)] == [True, False, True]
        noted = tx.execute(select(event_logs.c.type, event_logs.c.description)).all()
    [(kind, said)] = noted
    assert kind == EventType.ADMISSION_RULE_ERROR
    assert said.startswith("row 2 of admission_rules is written in Perl and was switched off")
    assert command("-S") == 0
    shown = capfd.readouterr().out
    assert "Language : Perl of the manual\n------\ndefault queue\n" in shown
    assert "Language : Perl (not used: Perl is not run)\n------\n" in shown
    assert command("-m", "2", "-Y") == 1
    assert "admission-rules.md" in capfd.readouterr().err


def test_a_job_meets_perl_rules_as_the_setting_says(database: Database):
    database.write(lambda tx: add_nodes(tx, ["node1"]) and None)
    database.write(lambda tx: administration.add_rules(tx, PERL))
    for setting, status in ((PerlRules.REFUSE, 400), (PerlRules.DISABLE, 200)):  # which switches the row off
        with running(database, job_min_uid=0, admission_perl_rules=setting) as server:
            reply = server.client_of("nobody").post("/jobs", {"command": "true", "directory": "/"})
            assert (reply.status == 200) == (status == 200), reply.body
            assert status == 200 or "is written in Perl" in reply.body["error"]


def test_a_perl_row_put_in_while_the_server_runs_is_switched_off_at_a_job(database: Database):
    database.write(lambda tx: add_nodes(tx, ["node1"]) and None)
    with running(database, job_min_uid=0) as server:
        client = server.client_of("nobody")

        def submitted() -> tuple[list[bool], int]:
            server.core.clock.at += 2  # rules are read once a second at most
            assert client.post("/jobs", {"command": "true", "directory": "/"}).status == 200
            with database.read() as tx:
                noted = tx.execute(select(event_logs).where(event_logs.c.type == EventType.ADMISSION_RULE_ERROR)).all()
                return [row.enabled for row in administration.all_rules(tx)], len(noted)

        assert submitted() == ([], 0)
        database.write(lambda tx: administration.add_rules(tx, PERL))
        assert submitted() == ([False], 1)
        assert submitted() == ([False], 1)
        database.write(lambda tx: administration.add_rules(tx, PERL))
        assert submitted() == ([False, False], 2)
