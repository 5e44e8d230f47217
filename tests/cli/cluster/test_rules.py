"""`oarlock rules` lists rules and tries the examples beside them."""

import json
from pathlib import Path

import pytest
from sqlalchemy import make_url

from oarlock.cli.oarlock import main
from oarlock.store.engine.database import Database
from oarlock.store.queries.site import administration
from tests.bed import needs_root


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch, tmp_path):
    (tmp_path / "empty.conf").touch()
    monkeypatch.setenv("OARLOCK_CONF", str(tmp_path / "empty.conf"))


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "rules"
    made.mkdir()
    (made / "10-a.toml").write_text(
        "[[rule]]\nname = 'a'\nwhen = \"queue IS NULL\"\nroute = 'night'\nprint = 'hello'\n"
        "[[example]]\nname = 'good'\ngives = { queue = 'night' }\n"
    )
    return made


def test_the_examples_of_the_shipped_rules_come_out(capsys):
    assert main(["rules", "test"]) == 0
    assert capsys.readouterr().out == "40 examples come out as they say.\n"


def test_a_folder_is_tried_alone(capsys, folder):
    assert main(["rules", "test", "-v", str(folder)]) == 0
    assert capsys.readouterr().out == "ok 10-a.toml: good\n1 examples come out as they say.\n"


def test_an_example_that_comes_out_otherwise_ends_with_2(capsys, folder):
    (folder / "11-b.toml").write_text("[[example]]\nname = 'bad'\ngives = { queue = 'day' }\n")
    (folder / "12-c.toml").write_text("[[rule]]\n")
    assert main(["rules", "test", str(folder)]) == 2
    shown = capsys.readouterr()
    assert shown.out == (
        "BROKEN 12-c.toml, rule 1: it has no name.\nFAILED 11-b.toml: bad\n       queue is None, not 'day'\n"
    )
    assert shown.err.startswith("oarlock: 1 of 2 examples come out otherwise; 1 files cannot be used.")


def test_rules_are_listed_in_the_order_in_which_they_apply(capsys, folder):
    (folder / "09-x.py").touch()
    (folder / "11-b.toml").write_text("x")
    assert main(["rules", "list", str(folder)]) == 0
    assert capsys.readouterr().out == (
        "   9  09-x.py: Python\n      when always: whatever it does, in a process of its own\n"
        "  10  10-a.toml: a\n      when queue IS NULL: route, print\n"
        "  11  11-b.toml: BROKEN\n      when always: refuses every job: 11-b.toml, at its end: this is not TOML: "
        "Expected '=' after a key in a key/value pair.\n"
    )


def test_the_list_is_also_for_programs(capsys, folder):
    assert main(["rules", "list", "--json", str(folder)]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"priority": 10, "source": "10-a.toml", "name": "a", "when": "queue IS NULL", "does": "route, print"}
    ]


def test_the_settings_name_the_sites_folder(capsys, folder, tmp_path):
    (tmp_path / "empty.conf").write_text(f"ADMISSION_RULES_DIR={folder}\n")
    assert main(["rules", "list"]) == 0
    listed = capsys.readouterr().out
    assert "10-a.toml: a\n" in listed
    assert "01-default-queue.toml: default queue\n" in listed


def test_a_folder_that_is_not_there_is_refused(capsys, tmp_path):
    assert main(["rules", "test", str(tmp_path / "no")]) == 2
    assert capsys.readouterr().err.startswith(f"oarlock: There is no folder {tmp_path}/no.")


def test_a_folder_without_rules_is_told(capsys, tmp_path):
    assert main(["rules", "list", str(tmp_path)]) == 2
    assert f"There is no rule in {tmp_path}: no file ends with .toml or .py." in capsys.readouterr().err


@needs_root
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def admit(job, context) return job", "does not work: SyntaxError"),
        ("def admit(job, context): return job['nosuch']", "does not work: KeyError: 'nosuch' (line 1)."),
        ("def admit(job, context): job['walltime'] = 'x'", "09-x.py does not work: "),
    ],
)
def test_a_python_rule_that_fails_on_the_server_fails_the_test(capsys, site, text, told):
    (site / "09-x.py").write_text(text)
    assert main(["rules", "test", str(site)]) == 2
    shown = capsys.readouterr()
    assert shown.out.startswith("BROKEN The admission rule 09-x.py")
    assert told in shown.out
    assert "1 files cannot be used" in shown.err


@needs_root
@pytest.mark.parametrize("text", ["def admit(job, context): pass", "def admit(job, context): refuse('never')"])
def test_a_python_rule_that_answers_passes_the_test(capsys, site, text):
    (site / "09-x.py").write_text(text)
    assert main(["rules", "test", str(site)]) == 0
    assert capsys.readouterr().out == "0 examples come out as they say.\n"


def test_a_python_rule_that_others_could_change_fails_the_test(capsys, folder):
    (folder / "09-x.py").write_text("def admit(job, context): pass")
    (folder / "09-x.py").chmod(0o666)
    assert main(["rules", "test", str(folder)]) == 2
    assert f"{folder}/09-x.py can be written by others. chmod go-w" in capsys.readouterr().out


def test_a_rule_whose_list_cannot_be_read_fails_the_test(capsys, folder):
    (folder / "11-b.toml").write_text("[[rule]]\nname = 'b'\nwhen = \"user IN FILE '/nosuch'\"\nreject = 'no'\n")
    assert main(["rules", "test", str(folder)]) == 2
    assert "BROKEN 11-b.toml, rule `b`: /nosuch cannot be read" in capsys.readouterr().out


def test_rules_in_the_database_are_listed_and_tried_with_the_others(capsys, tmp_path, database: Database):
    (tmp_path / "empty.conf").write_text(_settings(database))
    database.write(lambda tx: administration.add_rules(tx, "[[rule]]\nname = 'row'\nroute = 'night'\n", priority=5))
    database.write(lambda tx: administration.add_rules(tx, "not TOML", priority=6))
    database.write(lambda tx: administration.add_rules(tx, "[[rule]]\nname = 'off'\nroute = 'night'\n", enabled=False))
    state = str(Path(database.address).parent if database.engine_name == "sqlite" else tmp_path)
    assert main(["rules", "list", "--state", state]) == 0
    shown = capsys.readouterr()
    assert "   5  row 1 of admission_rules: row\n      when always: route\n" in shown.out
    assert "   6  row 2 of admission_rules: BROKEN\n" in shown.out
    assert ("off" in shown.out, shown.err) == (False, "")
    assert main(["rules", "test", "--state", state]) == 2
    assert "BROKEN row 2 of admission_rules" in capsys.readouterr().out


def _settings(database: Database) -> str:
    if database.engine_name == "sqlite":
        return ""
    url = make_url(database.address)
    return f"DB_TYPE=Pg\nDB_BASE_NAME={url.database}\nDB_BASE_LOGIN={url.username}\nDB_HOSTNAME={url.query['host']}\n"


def test_without_an_instance_the_list_says_that_rows_are_left_out(capsys, tmp_path):
    assert main(["rules", "list", "--state", str(tmp_path)]) == 0
    assert capsys.readouterr().err == (
        f"oarlock: the rules in the database are left out: There is no instance in {tmp_path}. "
        "`--state` names another.\n"
    )
