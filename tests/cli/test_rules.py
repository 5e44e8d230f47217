"""`oarlock rules` lists rules and tries the examples beside them."""

import json

import pytest

from oarlock.cli.oarlock import main


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
