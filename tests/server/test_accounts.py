"""Who is known on this machine."""

import asyncio
import logging

import pytest

from oarlock.node.attempt.user.identity import UserMissing
from oarlock.server.accounts import AccountLookup, warn_of_unknown_admins
from tests.node.attempt.test_user import exhausted, in_a_child


def test_an_administrator_whom_nobody_knows_is_told_of_once(caplog):
    with caplog.at_level(logging.WARNING):
        asyncio.run(warn_of_unknown_admins(("root", "nosuchuser")))
    [warning] = caplog.records
    assert (warning.levelname, warning.user) == ("WARNING", "nosuchuser")
    assert "ADMINS" in warning.getMessage()


def test_a_user_who_does_not_exist_is_missing():
    async def story():
        two_users = AccountLookup()
        assert await two_users.uid("root") == 0
        with pytest.raises(UserMissing, match="nosuchuser"):
            await two_users.uid("nosuchuser")
        two_users.close()

    asyncio.run(story())


def test_a_server_without_descriptors_does_not_say_that_a_user_is_missing():
    async def story():
        two_users = AccountLookup()
        exhausted()
        return await two_users.uid("daemon")

    assert in_a_child(lambda: asyncio.run(story())) == "LookUpFailed"
