"""Quotas of the site: their file, and what of them holds when."""

import json
import time
from itertools import pairwise

import pytest

from oarlock.config import Config
from oarlock.job import quotas
from oarlock.model.limits import BadQuotas
from oarlock.model.snapshot import QuotaRule
from oarlock.plan.timeline.occupancy import FOREVER
from tests.plan.drawing import cluster, licences, node, table

HOUR = 3600
SUMMER_BEGINS = 1774746000  # Sunday 2026-03-29, 01:00 UTC, when the clocks of Paris go from 2 to 3


@pytest.fixture(autouse=True)
def in_paris(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Paris")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def written(tmp_path):
    def write(content: object) -> Config:
        path = tmp_path / f"quotas{time.monotonic_ns()}.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return Config(quotas=True, quotas_conf_file=path)

    return write


def test_without_quotas_there_is_no_book(tmp_path):
    assert quotas.current(Config(quotas_conf_file=tmp_path / "none.json")) is None


def test_all_is_the_number_of_default_resources(written):
    book = quotas.current(written({"quotas": {"*,*,*,/": "ALL"}}))
    resources = table(*node("n1", 4), *licences(3))
    assert quotas.rules_over_time(book, resources, now=0) == ((QuotaRule("*", "*", "*", "/", 4),), ())


def test_a_calendar_follows_local_time_and_its_summer(written):
    book = quotas.current(written({"periodical": [["00:00-08:00 * * *", "night"], ["* * * *", "day"]],
                                "night": {"*,*,*,*": 1}, "day": {"*,*,*,*": 2}}))  # fmt: skip
    always, spans = quotas.rules_over_time(book, cluster(1, 1), now=SUMMER_BEGINS)
    first, second = spans[:2]
    midnight = SUMMER_BEGINS - 2 * HOUR
    assert always == ()
    assert (first.begin, first.end, first.rules[0].resources) == (midnight, midnight + 7 * HOUR, 1)
    assert (second.end - second.begin, second.rules[0].resources) == (16 * HOUR, 2)


def test_far_away_all_rules_hold_at_once(written):
    book = quotas.current(written({"periodical": [["* * * *", "week"]],
                                "oneshot": [["2026-04-01 12:00", "2026-04-02 12:00", "feast"]],
                                "week": {"*,*,*,*": 2}, "feast": {"*,*,*,a": 1}, "unused": {"*,*,*,b": 1},
                                }))  # fmt: skip
    _, spans = quotas.rules_over_time(book, cluster(1, 1), now=SUMMER_BEGINS)
    assert [(one.user, one.resources) for one in spans[-1].rules] == [("a", 1), ("*", 2)]
    assert spans[-1].end == FOREVER
    assert all(one.end == two.begin for one, two in pairwise(spans))
    assert [one.rules[0].user for one in spans] == ["*", "a", "*", "a"]


def test_a_calendar_without_rules_for_the_rest_of_the_time_has_none_then(written):
    book = quotas.current(
        written({"oneshot": [["2026-04-01 12:00", "2026-04-02 12:00", "feast"]], "feast": {"*,*,*,a": 1}})
    )
    _, spans = quotas.rules_over_time(book, cluster(1, 1), now=SUMMER_BEGINS)
    assert [len(one.rules) for one in spans] == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [("{", "are not JSON"), ("[]", "Quotas are an object"), ('{"quotas": {"x": 1}}', "`x` does not say whom")],
)
def test_a_bad_file_is_refused_with_its_name(written, content, sentence):
    config = written(content)
    with pytest.raises(BadQuotas, match=sentence) as refused:
        quotas.current(config)
    assert str(config.quotas_conf_file) in str(refused.value)


def test_a_file_that_is_not_there_or_not_named_is_refused(tmp_path):
    with pytest.raises(BadQuotas, match="cannot be read: No such file"):
        quotas.current(Config(quotas=True, quotas_conf_file=tmp_path / "none.json"))
    with pytest.raises(BadQuotas, match="nothing says which they are"):
        quotas.current(Config(quotas=True))


def _write(path, content) -> None:
    """Write a file as an editor does: another one in its place."""
    other = path.with_suffix(".new")
    other.write_text(content if isinstance(content, str) else json.dumps(content))
    other.replace(path)


def test_a_changed_file_is_read_again(tmp_path):
    path = tmp_path / "quotas.json"
    config = Config(quotas=True, quotas_conf_file=path)
    _write(path, {"quotas": {"*,*,*,/": 4}})
    first = quotas.current(config)
    assert quotas.current(config) is first
    _write(path, {"quotas": {"*,*,*,/": 5}})
    assert [rule.resources.number for rule in quotas.current(config).sets["quotas"]] == [5]


@pytest.mark.parametrize(
    ("content", "says"),
    [("{", "not JSON"), ({"quotas": {"*,*": 3}}, "does not say whom"), (None, "cannot be read: No such file")],
)
def test_a_changed_file_that_is_bad_is_reported_and_not_used(tmp_path, content, says):
    path = tmp_path / "quotas.json"
    config = Config(quotas=True, quotas_conf_file=path)
    _write(path, {"quotas": {"*,*,*,/": 4}})
    first = quotas.current(config)
    if content is None:
        path.unlink()
    else:
        _write(path, content)
    assert (quotas.current(config), quotas.current(config)) == (first, first)
    assert says in quotas.problem(config)
    _write(path, {"quotas": {}})
    assert quotas.current(config).sets == {"quotas": ()}
    assert quotas.problem(config) == ""


def test_a_name_that_is_there_twice_is_refused(written):
    with pytest.raises(BadQuotas, match=r"`\*,\*,\*,/` is there twice"):
        quotas.current(written('{"quotas": {"*,*,*,/": 1, "*,*,*,/": 2}}'))


def test_what_is_in_force_at_an_instant_has_a_name_and_an_end(written):
    book = quotas.current(written({"periodical": [["00:00-08:00 * * *", "night"], ["* * * *", "day"]],
                                "night": {"*,*,*,*": 1}, "day": {"*,*,*,*": 2}}))  # fmt: skip
    midnight = SUMMER_BEGINS - 2 * HOUR
    night = quotas.active_at(book, cluster(1, 1), at=SUMMER_BEGINS)
    assert (night.name, night.until, night.rules[0].resources) == ("night", midnight + 7 * HOUR, 1)
    day = quotas.active_at(book, cluster(1, 1), at=midnight + 7 * HOUR)
    assert (day.name, day.until, day.rules[0].resources) == ("day", midnight + 23 * HOUR, 2)
    always = quotas.active_at(quotas.current(written({"quotas": {"*,*,*,*": 3}})), cluster(1, 1), at=7)
    assert (always.name, always.until, len(always.rules)) == ("quotas", None, 1)
