"""What is installed is compared with known vulnerabilities, and every dependency has a bound and a reason."""

import json
import re
import tomllib
import zipfile
from pathlib import Path

import pytest

from scripts import audit

ROOT = Path(__file__).resolve().parent.parent
RECORD = {
    "id": "OSV-1",
    "summary": "It reads too much",
    "affected": [
        {
            "package": {"ecosystem": "PyPI", "name": "Some_Package"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "1.2"}, {"fixed": "1.10"}]}],
            "versions": ["0.9"],
        }
    ],
}


@pytest.mark.parametrize(
    ("version", "vulnerable"),
    [("0.9", True), ("1.1", False), ("1.2", True), ("1.9.9", True), ("1.10", False), ("2.0", False), ("odd", True)],
)
def test_versions_are_compared_as_versions_not_as_texts(version: str, vulnerable: bool):
    found = audit.complaints([RECORD], {("some-package", version), ("another", "1.3")})
    assert found == ([f"some-package {version}: OSV-1 It reads too much"] if vulnerable else [])


def test_a_record_that_was_withdrawn_or_is_of_others_says_nothing():
    other = {
        "id": "OSV-2",
        "affected": [{"package": {"ecosystem": "npm", "name": "some-package"}, "versions": ["0.9"]}],
    }
    assert audit.complaints([RECORD | {"withdrawn": "2026-01-01"}, other], {("some-package", "0.9")}) == []


def test_a_last_affected_version_is_affected():
    events = [{"introduced": "0"}, {"last_affected": "3.0"}]
    package = {"ecosystem": "PyPI", "name": "x"}
    record = {"id": "OSV-3", "affected": [{"package": package, "ranges": [{"type": "ECOSYSTEM", "events": events}]}]}
    assert [audit.concerns(record, "x", version) for version in ("2.9", "3.0", "3.0.1")] == [True, True, False]


def test_without_advisories_it_says_that_it_could_not_look(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert audit.main([str(tmp_path / "none.zip")]) == audit.COULD_NOT_LOOK
    assert "Could not look for vulnerabilities" in capsys.readouterr().out


def test_a_known_vulnerability_of_what_is_installed_ends_with_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    name, version = sorted(audit.installed())[0]
    record = {"id": "OSV-4", "affected": [{"package": {"ecosystem": "PyPI", "name": name}, "versions": [version]}]}
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("OSV-4.json", json.dumps(record))
    assert audit.main([str(tmp_path / "all.zip")]) == 1
    assert f"{name} {version}: OSV-4" in capsys.readouterr().out
    (tmp_path / "empty").mkdir()
    assert audit.main([str(tmp_path / "empty")]) == 0


def test_what_the_debian_package_carries_is_looked_at_too():
    assert audit.carried("# words\nJinja2==3.1.6 \\\n    --hash=sha256:0\n") == {("jinja2", "3.1.6")}
    assert len(audit.carried(audit.CARRIED.read_text())) > 10


def test_every_dependency_has_a_lower_bound_and_a_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    reasons = "".join(path.read_text() for path in (ROOT / "docs" / "decisions").glob("*.md")).lower()
    for requirement in (line for group in groups for line in group):
        name = re.match(r"[\w-]+", requirement)[0].lower().removeprefix("pytest-")
        assert ">=" in requirement, requirement
        assert name.replace("psycopg", "psycopg 3") in reasons, name
