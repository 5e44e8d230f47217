"""The check of commit subjects: what it refuses, and what it says where it cannot look."""

import subprocess
from pathlib import Path

from scripts import subjects

GIT = ["git", "-c", "user.name=ada", "-c", "user.email=ada@example.org"]


def test_subjects_of_more_than_72_characters_are_named():
    long = "x" * 73
    assert subjects.too_long([f"a1 {'x' * 72}", f"b2 {long}"]) == [
        f"commit b2: its subject has 73 characters, at most 72 are allowed: {long}"
    ]


def test_only_commits_after_the_named_one_are_looked_at(tmp_path: Path):
    def git(*words: str) -> str:
        return subprocess.run([*GIT, "-C", tmp_path, *words], check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    for subject in ("old", "new"):
        git("commit", "-q", "--allow-empty", "-m", subject)
    old = git("rev-parse", "HEAD~1")
    [line] = subjects.subjects(tmp_path, old) or []
    assert line.partition(" ")[2] == "new"
    assert subjects.subjects(tmp_path, "0" * 40) is None


def test_where_there_is_no_history_nothing_is_refused(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(subjects, "ROOT", tmp_path)
    assert subjects.main() == 0
    assert capsys.readouterr().out.startswith("Commit subjects were not looked at")
