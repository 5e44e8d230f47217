"""The rules of a site: the shipped ones, its own files in their place, rows of its table; what is broken refuses."""

import os
from pathlib import Path

import pytest

from oarlock.job.admission.rules import SHIPPED, RuleSetCache, RuleSource, load, sources
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.site import administration
from oarlock.store.queries.site.administration import StoredRule


def text(name: str, does: str = 'print = "hello"') -> str:
    return f'[[rule]]\nname = "{name}"\n{does}\n'


def names(found: list[RuleSource]) -> list[str]:
    return [rule.name for source in found for rule in source.rules]


def test_the_shipped_rules_are_on_in_their_order():
    assert names(sources(None)) == [
        "default queue", "no root", "drain", "admin queue", "levels", "besteffort queue", "besteffort type",
        "besteffort property", "no besteffort reservation", "inner needs a container",
        "inner reservation needs a reserved container", "deploy takes whole nodes", "deploy property",
        "desktop computing", "no desktop computing", "two waiting reservations", "interactive walltime",
        "default walltime", "known types", "resource type", "jobs without quotas",
    ]  # fmt: skip


def test_a_file_of_the_site_stands_in_for_the_shipped_one_of_its_name(tmp_path: Path):
    (tmp_path / "01-default-queue.toml").write_text(text("ours"))
    (tmp_path / "02-no-root.toml").write_text("")
    found = names(sources(tmp_path))
    assert found[:2] == ["ours", "drain"]
    assert "no root" not in found


@pytest.mark.manual(95, 116)
def test_files_and_rows_apply_by_their_numbers(tmp_path: Path):
    for name in ("20-b.toml", "9-a.toml", "last.toml", "20-a.toml", ".hidden.toml", "notes.txt"):
        (tmp_path / name).write_text(text(name))
    stored = [StoredRule(1, text("row at 0"), 0), StoredRule(2, text("row at 20"), 20)]
    assert names(sources(tmp_path, stored, shipped=None)) == [
        "row at 0", "9-a.toml", "20-a.toml", "20-b.toml", "row at 20", "last.toml",
    ]  # fmt: skip


def test_python_files_keep_their_place(tmp_path: Path):
    (tmp_path / "05-x.py").touch()
    (tmp_path / "01-y.toml").write_text(text("y"))
    assert [source.python for source in sources(tmp_path, shipped=None)] == [None, tmp_path / "05-x.py"]


def broken(path: Path) -> list[str]:
    return [source.broken for source in load(path).sources if source.broken]


def test_what_cannot_be_read_is_kept_as_broken(tmp_path: Path):
    (tmp_path / "30-toml.toml").write_text("[[rule")
    (tmp_path / "31-open.toml").write_text(text("open"))
    (tmp_path / "31-open.toml").chmod(0o666)
    (tmp_path / "32-latin.toml").write_bytes(b"# \xe9")
    (tmp_path / "33-list.toml").write_text(text("list", "when = \"user IN FILE '/no/such'\"\nreject = 'n'"))
    assert broken(tmp_path) == [
        "30-toml.toml, at its end: this is not TOML: Expected ']]' at the end of an array declaration.",
        f"{tmp_path}/31-open.toml can be written by everybody.",
        f"{tmp_path}/32-latin.toml is not UTF-8 text (byte 2).",
        "33-list.toml, rule `list`: /no/such cannot be read: No such file or directory.",
    ]
    assert broken(tmp_path / "gone") == [f"The folder of rules {tmp_path}/gone is not there."]


def test_a_file_of_names_has_one_a_line(tmp_path: Path):
    users = tmp_path / "users"
    users.write_text("# ours\nada\n\n  bob  \n")
    (tmp_path / "30-x.toml").write_text(text("x", f"when = \"user IN FILE '{users}'\"\nreject = 'n'"))
    assert load(tmp_path).lists == {str(users): frozenset({"ada", "bob"})}


def test_rules_are_read_again_when_a_file_or_a_row_changes(tx: Tx, tmp_path: Path):
    users = tmp_path / "users"
    users.write_text("ada\n")
    book = RuleSetCache(tmp_path)
    first = book.now(tx, now=1)
    assert book.now(tx, now=2) is first

    administration.add_rules(tx, text("a row"))
    assert book.now(tx, now=2) is first  # it looks once a second
    administration.add_rules(tx, text("switched off"), enabled=False)
    assert names(list(book.now(tx, now=3).sources))[0] == "a row"
    (tmp_path / "00-a.toml").write_text(text("a file", f"when = \"user IN FILE '{users}'\"\nreject = 'n'"))
    assert names(list(book.now(tx, now=4).sources))[:2] == ["a file", "a row"]
    users.write_text("ada\nbob\n")
    os.utime(users, (5, 5))
    assert book.now(tx, now=5).lists[str(users)] == {"ada", "bob"}
    (tmp_path / "00-a.toml").unlink()
    assert names(list(book.now(tx, now=6).sources))[:1] == ["a row"]


def test_the_wheel_would_carry_the_rules():
    assert len(list(SHIPPED.glob("*.toml"))) == 16


@pytest.mark.parametrize("path", sorted(SHIPPED.rglob("*.toml")), ids=lambda path: path.name)
def test_every_shipped_file_says_what_it_is_for(path: Path):
    assert path.read_text().startswith("# ")
