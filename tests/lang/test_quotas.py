"""The file of quotas: what is read, and what is refused with a sentence."""

import pytest

from oarlock.lang import quotas
from oarlock.model.limits import BadQuotas, OneShotQuota, QuotaAmount, QuotaBook, QuotaPeriod, WrittenRule
from oarlock.model.snapshot import QuotaRule

NONE = QuotaAmount(-1)
HOUR = 3600


def rule(who: str, resources: QuotaAmount = NONE, jobs: QuotaAmount = NONE, hours: QuotaAmount = NONE) -> WrittenRule:
    return WrittenRule(*who.split(","), resources, jobs, hours)


def spans(book: QuotaBook, days: int) -> list[tuple[float, float, str]]:
    """Give what holds from a Monday on, in hours."""
    found = quotas.spans(
        book, weekday=0, days=days, on_day=lambda day, second: day * 86400 + second,
        on_date=lambda date: (date[2] - 1) * 86400 + date[3] * HOUR + date[4] * 60,
    )  # fmt: skip
    return [(one.begin / HOUR, one.end / HOUR, one.name) for one in found]


def test_a_plain_file_has_rules_that_always_hold():
    book = quotas.read({"quotas": {"*,*,*,/": [16, "ALL", "0.5*ALL"], " q , p,t ,u": 3}, "job_types": ["t"]})
    rules = (
        rule("*,*,*,/", QuotaAmount(16), QuotaAmount(1, of_all=True), QuotaAmount(0.5, of_all=True)),
        rule("q,p,t,u", QuotaAmount(3)),
    )
    assert book == QuotaBook({"quotas": rules})
    assert quotas.resolved(rules, 64) == (
        QuotaRule("*", "*", "*", "/", 16, 64, 32 * HOUR), QuotaRule("q", "p", "t", "u", 3, -1, -1),
    )  # fmt: skip


def test_hours_may_have_fractions_and_resources_are_cut_off():
    [one] = quotas.resolved((rule("*,*,*,*", QuotaAmount(34.9), NONE, QuotaAmount(0.5)),), 10)
    assert (one.resources, one.jobs, one.resource_seconds) == (34, -1, 1800)


def test_a_calendar_has_periods_of_the_week_and_dates():
    book = quotas.read({
        "periodical": [["08:00-19:30 mon,wed * *", "day", "a word"], ["default", "rest"], ["* sat-sun * *", "rest"]],
        "oneshot": [["2026-06-03 12:00", "2026-06-04 00:00", "feast", "a word"]],
        "day": {}, "rest": {}, "feast": {},
    })  # fmt: skip
    periods = [QuotaPeriod(0, 8 * HOUR, 19 * HOUR + 1800, "day"), QuotaPeriod(2, 8 * HOUR, 19 * HOUR + 1800, "day")]
    weekend = [QuotaPeriod(5, 0, 86400, "rest"), QuotaPeriod(6, 0, 86400, "rest")]
    assert (book.week, book.otherwise) == ((*periods, *weekend), "rest")
    assert book.oneshots == (OneShotQuota((2026, 6, 3, 12, 0), (2026, 6, 4, 0, 0), "feast"),)
    assert spans(book, 4) == [
        (0, 8, "rest"), (8, 19.5, "day"), (19.5, 56, "rest"), (56, 60, "day"), (60, 72, "feast"), (72, 96, "rest"),
    ]  # fmt: skip


def test_days_may_go_round_the_end_of_the_week():
    book = quotas.read({"periodical": [["* fri-mon * *", "long"], ["22:00-00:00 tue * *", "late"]],
                        "quotas": {}, "long": {}, "late": {}})  # fmt: skip
    assert spans(book, 7) == [
        (0, 24, "long"), (24, 46, "quotas"), (46, 48, "late"), (48, 96, "quotas"), (96, 168, "long"),
    ]  # fmt: skip


def test_only_dates_hold_beside_what_always_does():
    dates = [["2026-06-20 00:00", "2026-06-21 00:00", "feast"], ["2026-06-02 00:00:00", "2026-06-09 00:00", "feast"]]
    book = quotas.read({"oneshot": dates, "feast": {}})
    assert spans(book, 3) == [(0, 24, "quotas"), (24, 72, "feast")]


WEEK = [["* * * *", "a"]]
SHOT = ["2026-06-02 00:00", "2026-06-09 00:00", "a"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], "Quotas are an object."),
        ({"quotas": []}, "`quotas` is not a set of rules."),
        ({"quotas": {"*,*,*": 1}}, "`*,*,*` does not say whom a quota is for."),
        ({"quotas": {"*,*,*,a b": 1}}, "`*,*,*,a b` does not say whom a quota is for."),
        ({"quotas": {"*,*,/,*": 1}}, "`*,*,/,*`: types cannot be counted each by itself."),
        ({"quotas": {"*,*,*,*": [1, 2]}}, "The quota `*,*,*,*` has 2 limits."),
        ({"quotas": {"*,*,*,*": "many"}}, "The quota `*,*,*,*` has the limit `many`, which is none."),
        ({"quotas": {"*,*,*,*": [True, 1, 1]}}, "The quota `*,*,*,*` has the limit `True`, which is none."),
        ({"periodical": "always"}, "`periodical` is not a list of periods."),
        ({"periodical": [["* * * *"]]}, "`periodical` is not a list of periods."),
        ({"oneshot": [SHOT[:2]]}, "`oneshot` is not a list of periods."),
        ({"periodical": WEEK}, "`* * * *` names the rules `a`, of which there are none."),
        ({"oneshot": [SHOT]}, "`2026-06-02 00:00` names the rules `a`, of which there are none."),
        ({"periodical": [["mon * *", "a"]], "a": {}}, "`mon * *` is not a period of a week."),
        ({"periodical": [["* mon 1 *", "a"]], "a": {}}, "`* mon 1 *` is not a period of a week."),
        ({"periodical": [["8-9 mon * *", "a"]], "a": {}}, "`8-9 mon * *` has no good hours."),
        ({"periodical": [["09:00-08:00 mon * *", "a"]], "a": {}}, "`09:00-08:00 mon * *` has no good hours."),
        ({"periodical": [["09:75-10:00 mon * *", "a"]], "a": {}}, "`09:75-10:00 mon * *` has no good hours."),
        ({"periodical": [["* day * *", "a"]], "a": {}}, "`* day * *` has no good days."),
        ({"periodical": [["* mon-day * *", "a"]], "a": {}}, "`* mon-day * *` has no good days."),
        ({"periodical": [["* mon * *", "a"]], "a": {}}, "No period speaks of tue 00:00."),
        (
            {"periodical": [*WEEK, ["* mon * *", "a"], ["23:00-00:00 sun-mon * *", "a"]], "a": {}},
            "Two periods speak of mon 23:00.",
        ),
        (
            {"oneshot": [["2026-05-02 00:00", "2026-05-03 00:00", "a"], [SHOT[1], SHOT[0], "a"]], "a": {}},
            "A period of a ends before it begins.",
        ),
        ({"oneshot": [SHOT, ["2026-06-08 00:00", "2026-06-10 00:00", "a"]], "a": {}}, "Two periods overlap: a and a."),
        ({"oneshot": [["2026-06-32 00:00", *SHOT[1:]]], "a": {}}, "`2026-06-32 00:00` is not a date."),
        ({"oneshot": [["soon", *SHOT[1:]]], "a": {}}, "`soon` is not a date."),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence_and_a_way_out(given, sentence):
    with pytest.raises(BadQuotas) as refused:
        quotas.read(given)
    assert str(refused.value) == sentence
    assert refused.value.hint


def test_every_mistake_is_told_at_once():
    given = {
        "quotas": {"*,*": 3, "*,*,*,/": [1, 2], "*,*,*,*": "some"},
        "night": 7,
        "periodical": [["25:00-26:00 * * *", "night"], ["* noday * *", "day"], ["* * * *", "night"]],
        "oneshot": [["soon", "2027-01-04 08:00", "night"]],
    }
    assert [str(one) for one in quotas.mistakes(given)] == [
        "`*,*` does not say whom a quota is for.",
        "The quota `*,*,*,/` has 2 limits.",
        "The quota `*,*,*,*` has the limit `some`, which is none.",
        "`night` is not a set of rules.",
        "`25:00-26:00 * * *` has no good hours.",
        "`* noday * *` names the rules `day`, of which there are none.",
        "`* noday * *` has no good days.",
        "`soon` is not a date.",
    ]
    assert all(one.hint for one in quotas.mistakes(given))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], ["Quotas are an object."]),
        (
            {"periodical": 3, "oneshot": 4},
            ["`periodical` is not a list of periods.", "`oneshot` is not a list of periods."],
        ),
        ({"periodical": [["08:00-19:00 mon * *", "a"]], "a": {}}, ["No period speaks of mon 00:00."]),
        ({"quotas": {"*,*,*,/": 3}}, []),
    ],
)
def test_what_is_seen_only_when_the_rest_is_right_comes_alone(given, says):
    assert [str(one) for one in quotas.mistakes(given)] == says


def test_rules_that_never_hold_are_named():
    given = {"periodical": [["* * * *", "week"]], "week": {}, "feast": {}, "quotas": {}}
    assert quotas.unused(quotas.read(given)) == ["feast", "quotas"]
