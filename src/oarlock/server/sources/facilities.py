"""File systems and virtual machines of the site, as Prometheus and Robinhood report them; asked once a minute."""

import asyncio
import grp
import pwd
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from oarlock.config import Config
from oarlock.measure.remote.engine import ANSWER_SECONDS, EngineAway, PrometheusTarget
from oarlock.measure.remote.facilities import (
    NamedCurve,
    StorageActivity,
    VirtualMachine,
    read_machine_curves,
    read_machines,
    read_storage,
    read_storage_curves,
)
from oarlock.model.errors import NotFound, OarlockError
from oarlock.model.source import SourceAway, SourceHealth
from oarlock.server.collecting.elsewhere import prometheus_target
from oarlock.server.collecting.engine_curves import AnswerCache
from oarlock.server.sources.follow import QuestionLog
from oarlock.settings.kinds import SiteExporter
from oarlock.store.sources.connections import ForeignDatabase, parse_address
from oarlock.store.sources.robinhood import SpaceAnswer, SpaceUse, read_space

_DAY = 86_400
_MINUTE = 60
T = TypeVar("T")


class SiteFacilities:
    """Asks the sources that the settings name. `now` is the server's clock."""

    def __init__(self, config: Config, now: Callable[[], float]) -> None:
        self._now = now
        self._target = prometheus_target(config)
        self._exporters = config.prometheus_has
        url = config.prometheus_url
        self._cache = AnswerCache(lambda: EngineAway(url, f"none within {ANSWER_SECONDS:g} s"))
        password = "" if config.robinhood_password is None else config.robinhood_password.value
        self._databases = {name: _database(name, text, password) for name, text in config.robinhood_databases.items()}
        self._space_caches = {name: AnswerCache(partial(_late, name)) for name in self._databases}
        self._logs = {
            SiteExporter.LUSTRE: QuestionLog("Prometheus: Lustre", "traffic of file systems, of jobs on them"),
            SiteExporter.LIBVIRTD: QuestionLog("Prometheus: libvirtd", "virtual machines of projects"),
        }
        self._space_logs = {name: QuestionLog(f"Robinhood: {name}", "space by user") for name in self._databases}

    @property
    def health(self) -> list[SourceHealth]:
        """How the sources fared when each was asked last."""
        return [
            *(log.health for name, log in self._logs.items() if name in self._exporters),
            *(log.health for log in self._space_logs.values()),
        ]

    async def storage(self, seconds: int) -> StorageActivity:
        """Return what file systems do, on average over so many seconds."""
        return await self._ask(
            SiteExporter.LUSTRE,
            ("storage", seconds),
            lambda target, now: read_storage(target, now=now, seconds=seconds),
        )

    async def storage_curves(self) -> list[NamedCurve]:
        """Return what file systems did in the last day."""
        return await self._ask(
            SiteExporter.LUSTRE, "curves", lambda target, now: read_storage_curves(target, since=now - _DAY, until=now)
        )

    async def machines(self) -> list[VirtualMachine]:
        """Return the virtual machines of all projects."""
        return await self._ask(
            SiteExporter.LIBVIRTD, "machines", lambda target, now: read_machines(target, now=now)
        )  # fmt: skip

    async def machine_curves(self, projects: Sequence[str], uuid: str) -> list[NamedCurve]:
        """Return what the machines of projects did in the last day; of one, if it is named."""

        def read(target: PrometheusTarget, now: float) -> list[NamedCurve]:
            return read_machine_curves(target, projects, uuid, since=now - _DAY, until=now)

        return await self._ask(SiteExporter.LIBVIRTD, (tuple(projects), uuid), read)

    async def space(self) -> SpaceAnswer:
        """Return who has how much on the file systems that Robinhood scans; those that do not answer are named."""
        if not self._databases:
            raise NotFound("No database of Robinhood is known here.", hint="ROBINHOOD_DATABASES names them.")
        answers = await asyncio.gather(*map(self._space_of, self._databases))
        return SpaceAnswer(
            [row for answer in answers if not isinstance(answer, str) for row in answer],
            [answer for answer in answers if isinstance(answer, str)],
        )

    def close(self) -> None:
        """End what is under way."""
        for cache in (self._cache, *self._space_caches.values()):
            cache.close()
        for database in self._databases.values():
            database.close()

    async def _ask(
        self, exporter: SiteExporter, key: Hashable, read: Callable[[PrometheusTarget, float], T]
    ) -> T:  # fmt: skip
        target = self._target
        if target is None or exporter not in self._exporters:
            raise NotFound(
                f"Nothing here knows what {exporter.value}'s exporter tells.",
                hint="PROMETHEUS_URL and PROMETHEUS_HAS in the settings name it.",
            )
        now = self._now() // _MINUTE * _MINUTE
        with self._logs[exporter].timed(int(now)):
            return await self._cache.ask(key, lambda: read(target, now))

    async def _space_of(self, name: str) -> list[SpaceUse] | str:
        try:
            with self._space_logs[name].timed(int(self._now())):
                return await self._space_caches[name].ask(name, partial(_named_space, self._databases[name], name))
        except OarlockError:  # why is for administrators: it names hosts
            return f"Robinhood's database of {name} does not answer."


def _database(name: str, text: str, password: str) -> ForeignDatabase:
    address = parse_address(text, password, setting="ROBINHOOD_DATABASES")
    return ForeignDatabase(address, f"Robinhood's database of {name}", seconds=ANSWER_SECONDS)


def _late(name: str) -> SourceAway:
    return SourceAway(f"Robinhood's database of {name}", f"nothing within {ANSWER_SECONDS:g} s")


def _named_space(database: ForeignDatabase, name: str) -> list[SpaceUse]:
    """Read the space of users; where Robinhood keeps numbers, users and groups get their names."""
    rows = read_space(database, name)
    if not any(row.user.isdigit() or row.group.isdigit() for row in rows):
        return rows
    users = {entry.pw_uid: entry.pw_name for entry in pwd.getpwall()}
    groups = {entry.gr_gid: entry.gr_name for entry in grp.getgrall()}
    return [replace(row, user=_name(users, row.user), group=_name(groups, row.group)) for row in rows]


def _name(names: Mapping[int, str], text: str) -> str:
    return names.get(int(text), text) if text.isdigit() and len(text) < 11 else text
