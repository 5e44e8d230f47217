"""The server's ears: who is at the other end is what the kernel says."""

from oarlock import __version__
from oarlock.store.database import Database
from tests.web.house import NOW, running


def test_both_ears_hear_and_say_which_server_this_is(database: Database):
    told = {"version": __version__, "cluster": "cluster", "now": NOW}
    with running(database) as house:
        assert house.client.get("/version").body == told
        assert house.client_at_port().get("/version").body == told


def test_who_is_asked_over_the_port_without_a_token_has_no_name(database: Database):
    with running(database) as house:
        assert house.client.get("/jobs").status == 200
        refused = house.client_at_port().get("/jobs")
        assert (refused.status, refused.body["kind"]) == (401, "NotSignedIn")
