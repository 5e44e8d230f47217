"""The energy ledger as it is asked for: nodes by everybody, jobs by their owners and by administrators."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.cli.subcommands.measurements import meter
from oarlock.client import RequestRefused
from oarlock.measure.energy.division import BookingKey, EnergyBooking
from oarlock.server.collecting.bookkeeping import EnergyBooker
from oarlock.server.collecting.messages import BookedEnergy
from oarlock.store.engine.tx import Tx
from tests.store.cluster import add_job
from tests.web.nodeless_server import NOW, Running, alone

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

ADMIN = "root"
DAY = 86_400
TODAY = NOW // DAY * DAY


def _fill(tx: Tx) -> None:
    add_job(tx, user="nobody", project="moon")
    add_job(tx, user="daemon", project="moon")


@pytest.fixture
def api(sqlite_path: Path) -> Iterator[Running]:
    with alone(sqlite_path, job_min_uid=1, energy_pue=1.5, energy_co2=50.0) as running:
        database = running.core.database
        database.write(_fill)
        booking = EnergyBooking(7_200_000_000, 3_600_000_000, 0, 3600.0, {1: 3_000_000_000, 2: 600_000_000}, until=1)
        EnergyBooker(database).take(BookedEnergy([(BookingKey("n1", TODAY, "rapl"), booking)]))
        database.write(lambda _: None)  # the writer takes changes in their order
        yield running


def test_everybody_sees_what_meters_counted(api):
    view = api.client_of("nobody").get("/energy?by=node,day").body
    [row] = view["rows"]
    assert (row["group"], row["joules"], row["jobs"]) == ({"node": "n1", "day": TODAY}, 3_600_000.0, 2)
    assert (row["meter"]["joules"], row["meter"]["idle_joules"], row["meter"]["methods"]) == (
        7_200_000.0,
        3_600_000.0,
        ["rapl"],
    )
    assert row["meter"]["coverage"] == pytest.approx(3600 / DAY)


def test_users_see_their_own_jobs_and_administrators_all(api):
    own = api.client_of("nobody").get("/energy?by=user,job").body
    assert (own["own"], [row["group"] for row in own["rows"]]) == (True, [{"user": "nobody", "job": 1}])
    everything = api.client_of(ADMIN).get("/energy?by=user").body
    assert [(row["group"]["user"], row["joules"]) for row in everything["rows"]] == [
        ("nobody", 3_000_000.0),
        ("daemon", 600_000.0),
    ]


def test_the_command_prints_a_sum_that_is_right(api):
    view = api.client_of(ADMIN).get("/energy?by=project").body
    text = meter.lines(view)
    assert text[1:3] == ["PROJECT  JOBS    ENERGY", "moon        2  1.00 kWh"]
    assert text[3] == "Meters: 2.00 kWh = 1.00 kWh jobs + 1.00 kWh idle + 0 J not assigned"
    assert text[-2:] == ["With cooling and losses (PUE 1.5): 3 kWh", "CO2: 0.15 kg"]


def test_a_factor_that_is_not_set_hides_its_line(api):
    view = api.client_of(ADMIN).get("/energy?by=project").body
    assert view["factors"] == {"pue": 1.5, "co2_grams": 50.0}
    lines = {
        ("price", "currency"): ["Cost: 0.60 EUR"],
        ("pue",): ["With cooling and losses (PUE 1.5): 3 kWh"],
        ("co2_grams",): ["CO2: 0.1 kg"],
        (): [],
    }
    every = {"pue": 1.5, "co2_grams": 50.0, "price": 0.3, "currency": "EUR"}
    for names, expected in lines.items():
        text = meter.lines({**view, "factors": {name: every[name] for name in names}})
        assert text[5:] == expected


@pytest.mark.parametrize("by", ["node", "user", "project", "job", "day", "node,user,project,job,day", "user,day"])
def test_rows_of_every_grouping_add_up_to_the_jobs_of_the_meters(api, by):
    view = api.client_of(ADMIN).get(f"/energy?by={by}").body
    assert sum(row["joules"] for row in view["rows"]) == view["total"]["jobs_joules"] == 3_600_000.0
    parts = [view["total"][name] for name in ("jobs_joules", "idle_joules", "not_assigned_joules")]
    assert sum(parts) == view["total"]["joules"]


def test_the_energy_of_a_job_stands_in_its_usage(api):
    assert api.client_of("nobody").get("/jobs/1/usage").body["energy_joules"] == 3_000_000.0


def test_without_a_meter_the_command_says_how_to_get_one(api):
    view = api.client_of(ADMIN).get("/energy?since=0&until=1").body
    assert meter.lines(view)[0] == "No meter of any node counted anything from 1970-01-01 to 1970-01-01."


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("since=20&until=10", "The end of the interval, 10, is before its beginning, 20."),
        ("by=node,node", "`by` names something twice: node,node."),
        ("by=colour", "colour"),
    ],
)
def test_a_wrong_question_is_refused_with_the_value(api, query, sentence):
    reply = api.client_of("nobody").get(f"/energy?{query}")
    assert (reply.status, sentence in reply.body["error"]) == (400, True), reply.body


def test_since_takes_spans_and_dates():
    assert meter.since("12h", now=100_000.0) == 100_000 - 12 * 3600
    assert meter.since("4w", now=99.0) == 0
    with pytest.raises(RequestRefused, match="`7x` is not a date"):
        meter.since("7x", now=0.0)
