"""A site's own file of findings."""

from pathlib import Path

import pytest

from oarlock.insight.rules import own_rules, read_rules
from oarlock.lang import where
from oarlock.model.submission_errors import BadRule


def _read(tmp_path: Path, text: str):
    file = tmp_path / "findings.toml"
    file.write_text(text)
    return read_rules(file)


def test_a_site_changes_one_key_and_the_rest_stays(tmp_path: Path):
    rules = _read(tmp_path, '[[finding]]\nid = "gpu.zero"\nleast_seconds = 1200\n')
    [changed] = [rule for rule in rules.findings if rule.id == "gpu.zero"]
    [own] = [rule for rule in own_rules().findings if rule.id == "gpu.zero"]
    assert changed.least_seconds == 1200
    assert (changed.bad, changed.texts, changed.plot) == (own.bad, own.texts, own.plot)


def test_a_site_switches_one_off_and_adds_another(tmp_path: Path):
    rules = _read(
        tmp_path,
        '[[finding]]\nid = "cpu.low"\noff = true\n'
        '[[finding]]\nid = "site.wide"\nwarn = "nodes > 100"\ntext = "{nodes} nodes."\n',
    )
    ids = [rule.id for rule in rules.findings]
    assert "cpu.low" not in ids
    assert ids[-1] == "site.wide"
    assert rules.findings[-1].warn == where.parse("nodes > 100")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[[finding", "Expected ']]' at the end of an array declaration"),
        ('[[finding]]\nid = "x"\n', "`x` is not the name of a finding."),
        ('[[finding]]\nid = "a.b"\ntext = "t"\n', "`a.b`: it has no condition."),
        ('[[finding]]\nid = "a.b"\nwarn = "nodes > 1"\n', "`a.b`: it has no text."),
        ('[[finding]]\nid = "a.b"\nwarn = "nodez > 1"\ntext = "t"\n', "nodez"),
        ('[[finding]]\nid = "a.b"\nwarn = "nodes >"\ntext = "t"\n', "`a.b`:"),
        ('[[finding]]\nid = "a.b"\nwarn = "nodes IN FILE \'/etc/shadow\'"\ntext = "t"\n', "`a.b`:"),
        ('[[finding]]\nid = "a.b"\nwarn = "nodes > 1"\ntext = "{nodez}"\n', "there is no fact `nodez`"),
        ('[[finding]]\nid = "a.b"\nwarn = "nodes > 1"\ntext = "{nodes.__class__}"\n', "there is no fact"),
        ('[[finding]]\nid = "a.b"\nwarn = "nodes > 1"\ntext = "{"\n', "is not a template"),
        ('[[finding]]\nid = "a.b"\nbed = "nodes > 1"\n', "unknown field `bed`"),
        ('[[finding]]\nid = "gpu.zero"\nacts = "delete"\n', "unknown field `acts`"),
        ('[[script]]\nid = "a.b"\npattern = \'(\'\ntext = "t"\n', "is not a regular expression"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_place(tmp_path: Path, text: str, sentence: str):
    with pytest.raises(BadRule) as refused:
        _read(tmp_path, text)
    assert sentence in str(refused.value)
    assert str(tmp_path) in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(BadRule, match=r"absent\.toml cannot be read"):
        read_rules(tmp_path / "absent.toml")
