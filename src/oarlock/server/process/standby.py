"""A standby server: it waits until the active one of its PostgreSQL database is gone, and takes its place."""

import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

from oarlock.model.errors import DatabaseAway
from oarlock.store.engine.standby_watch import LOOK_SECONDS, StandbyWatch

log = logging.getLogger(__name__)


def wait_for_turn(address: str | Path, alive: Callable[[], None]) -> None:
    """Return once no other server holds the database; a database that is away is waited for as well.

    `alive` is called at every look.
    """
    with contextlib.closing(StandbyWatch.of(address)) as watch:
        log.info("standing by", extra={"database": watch.address})
        alive()
        while not _is_free(watch):
            alive()
            time.sleep(LOOK_SECONDS)
    log.info("taking over: no other server holds the database")


def _is_free(watch: StandbyWatch) -> bool:
    try:
        return watch.look()
    except DatabaseAway as error:
        log.warning("still standing by", extra={"why": str(error)})
        return False
