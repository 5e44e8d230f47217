"""Who is known on this machine."""

import asyncio
import logging

from oarlock.server.people import warn_of_strangers


def test_an_administrator_whom_nobody_knows_is_told_of_once(caplog):
    with caplog.at_level(logging.WARNING):
        asyncio.run(warn_of_strangers(("root", "nosuchuser")))
    [warning] = caplog.records
    assert (warning.levelname, warning.user) == ("WARNING", "nosuchuser")
    assert "ADMINS" in warning.getMessage()
