"""Launches are read strictly; reports are believed only with the secret of their attempt."""

import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.node.wire.messages import (
    EXITED,
    CgroupLimits,
    Launch,
    NodeRequestRefused,
    Report,
    ResourceLines,
    SiteHooks,
    mac,
    parse_launch,
    parse_settings,
    same_mac,
    sign_report,
    verify_report,
)

SECRET, OTHER = "a1" * 32, "b2" * 32
REPORT = Report(
    7, 2, "node1", "boot", EXITED, status=256, events=(("WALLTIME", "over"),), counters={"cpu_seconds_total": 1.5}
)
GOOD = {"job": 7, "attempt": 1, "secret": SECRET, "boot": "", "user": "ada", "command": "true"}


def over_the_wire(body):
    return json.loads(json.dumps(body))


def test_a_launch_is_the_same_after_its_journey():
    sent = Launch(
        **GOOD,
        limits=CgroupLimits((0, 3), 1 << 30, 50, ("c 195:1 rwm",)),
        hooks=SiteHooks("/p", "/e", 5),
        nodes=("n1", "n1"),
        resources=({"cpu": 1},),
        environment={"A": "b"},
        gpus=(0, 1),
    )
    assert parse_launch(over_the_wire(sent.body())) == sent


def test_resources_that_all_nodes_share_travel_as_those_of_one():
    lines = ({"resource_id": 1, "network_address": 'a"é'}, {"resource_id": 2, "network_address": None})
    alone = Launch(7, 1, SECRET, "", "ada", "true", resources=lines)
    shared = alone._replace(resources=ResourceLines(lines))
    assert json.loads(shared.request()) == json.loads(alone.request())
    assert parse_launch(json.loads(shared.request())) == alone


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"uid_of_root": 0}, "uid_of_root"),
        ({"user": "../../etc"}, "not the name of a user"),
        ({"user": "a/b"}, "not the name of a user"),
        ({"user": "-ada"}, "not the name of a user"),
        ({"user": None}, "user is None, not a text"),
        ({"job": "7"}, "job is '7', not a number"),
        ({"walltime": True}, "walltime is True, not a number"),
        ({"command": ["true"]}, "not a text"),
        ({"attempt": 0}, "both must be above 0"),
        ({"role": "boss"}, "no role"),
        ({"limits": {"fuel": 3}}, "fuel"),
    ],
)
def test_an_odd_launch_is_refused(change, says):
    with pytest.raises(NodeRequestRefused, match=says):
        parse_launch({**GOOD, **change})


@pytest.mark.parametrize("name", ["", "..", "a/b", "-x", "a b"])
def test_a_node_name_that_would_be_another_path_is_refused(name):
    with pytest.raises(NodeRequestRefused, match="not the name of a node"):
        parse_settings({"node": name, "spool": "/s", "runtime": "/r"})


def test_a_report_is_believed_with_its_secret():
    assert verify_report(over_the_wire(sign_report(REPORT, SECRET)), SECRET) == REPORT


def test_a_report_of_another_attempt_or_with_another_secret_is_not():
    body = sign_report(REPORT, SECRET)
    assert verify_report(body, OTHER) is None
    assert verify_report({**body, "attempt": 3}, SECRET) is None
    assert verify_report({**body, "mac": ""}, SECRET) is None
    assert verify_report({**body, "mac": None}, SECRET) is None
    assert verify_report({**body, "report": body["report"] + " "}, SECRET) is None
    assert verify_report({**body, "mac": body["mac"][:-1] + "é"}, SECRET) is None


@given(st.data())
def test_a_report_with_one_changed_character_is_not_believed(data):
    body = sign_report(REPORT, SECRET)
    field = data.draw(st.sampled_from(["report", "mac"]))
    at = data.draw(st.integers(0, len(body[field]) - 1))
    other = data.draw(st.characters().filter(lambda c: c != body[field][at]))
    assert verify_report({**body, field: body[field][:at] + other + body[field][at + 1 :]}, SECRET) is None


@given(st.text(), st.binary(min_size=1, max_size=100))
def test_the_signature_is_hmac_sha256(text, key):
    if any(0xD800 <= ord(c) < 0xE000 for c in text):
        return
    assert mac(text, key.hex()) == hmac.new(key, text.encode(), "sha256").hexdigest()


@given(st.text(), st.text())
def test_signatures_are_the_same_only_if_they_are(one, other):
    assert same_mac(one, other) == (one == other)
