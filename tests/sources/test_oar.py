"""A live OAR, read from its database: what the portal's verbs say of it."""

import asyncio
from dataclasses import replace

import msgspec
import psycopg
import pytest
from sqlalchemy import create_engine, text

from oarlock.config import Config
from oarlock.model.errors import ConfigRefused, Forbidden, OarlockError, UnknownJob
from oarlock.model.source import SourceAway
from oarlock.server.portal import PortalCore
from oarlock.server.sources.follow import SourceFollower
from oarlock.settings.kinds import JobVisibility
from oarlock.store.engine.opening import open_database
from oarlock.store.sources.connections import ForeignDatabase, parse_address
from oarlock.store.sources.oar import OarDatabase
from oarlock.web import decode
from oarlock.web.app import VERBS
from oarlock.web.dispatch import Dispatcher
from oarlock.web.identity import Caller, CallerChannel, UserAccount
from oarlock.web.pages.parts.rendering import Renderer, Surroundings
from oarlock.web.pages.parts.view import View
from oarlock.web.policy import AccessPolicy
from tests.sources import oar_cluster
from tests.sources.oar_cluster import NOW

RENDERER = Renderer()
ANN = Caller(UserAccount("ann", 5001), CallerChannel.TOKEN)
ADMIN = Caller(UserAccount("root", 0), CallerChannel.TOKEN, admin=True)


def plain(address):
    return address.set(drivername="postgresql").render_as_string(hide_password=False)


@pytest.fixture(params=["postgresql", "mariadb", "oar's own schema"])
def oar(request):
    """Addresses of OAR's database: for who may change it, and for `oar_ro`."""
    if request.param == "mariadb":
        server = request.getfixturevalue("mariadb")
        server.run("DROP DATABASE IF EXISTS oar; CREATE DATABASE oar; "
                   "CREATE OR REPLACE USER oar_ro@localhost; GRANT SELECT ON oar.* TO oar_ro@localhost;")  # fmt: skip
        address = parse_address(server.url("root", "oar"))
        reader = server.url("oar_ro", "oar")
    else:
        if request.param != "postgresql" and oar_cluster.SCHEMA is None:
            pytest.skip("the schema of OAR 2.5 is not recorded here")
        postgres = request.getfixturevalue("postgres")
        address = parse_address(postgres.make(template="template0"))
        with psycopg.connect(plain(address), autocommit=True) as connection:
            if request.param != "postgresql":
                connection.execute(oar_cluster.SCHEMA.read_text())
                connection.execute("ALTER TABLE resources ADD COLUMN core integer, ADD COLUMN cpu integer, "
                                   "ADD COLUMN wattage bigint")  # fmt: skip
            connection.execute("DROP ROLE IF EXISTS oar_ro; CREATE ROLE oar_ro LOGIN")
        reader = plain(address.set(username="oar_ro"))
    engine = create_engine(address)
    oar_cluster.metadata.create_all(engine, checkfirst=True)
    oar_cluster.fill(engine)
    if request.param != "mariadb":
        with engine.begin() as tx:
            tx.execute(text("GRANT SELECT ON ALL TABLES IN SCHEMA public TO oar_ro"))
    yield engine, reader
    engine.dispose()
    if request.param != "mariadb":
        with psycopg.connect(plain(address), autocommit=True) as connection:
            connection.execute("DROP OWNED BY oar_ro")
            connection.execute("DROP ROLE oar_ro")
        postgres.drop(plain(address))


class Clock:
    def now(self):
        return NOW


class Portal:
    """A portal without sockets."""

    def __init__(self, folder, source, **settings):
        self.database = open_database(folder / "oarlock.db", create=True)
        self.config = Config(**{"cluster_name": "theirs"} | settings)
        self.core = PortalCore(folder, self.config, self.database)
        self.core.clock = Clock()
        self.core.follower = SourceFollower(self.core, source)
        policy = replace(AccessPolicy.of(self.config), read_only=True, only=None, admins=frozenset({"root"}))
        self.dispatcher = Dispatcher(self.core, policy, None)

    async def ask(self, name, caller=ADMIN, /, **fields):
        verb = VERBS[name]
        value = await self.dispatcher.ask(caller, verb, decode.fields(fields, verb.request))
        return (
            msgspec.json.decode(value, type=verb.response)
            if isinstance(value, bytes) and verb.response is not str
            else value
        )

    async def page(self, show, path="/", caller=ADMIN, **parts):
        """Return the HTML of a page that one of the functions of `web.pages` shows."""
        answer = await show(View(self.dispatcher, caller, path, {}, parts))
        around = Surroundings(self.config, path, NOW, caller, None, "en")
        return RENDERER.render(answer.template, answer.values, around).decode()

    async def close(self):
        await self.core.close()
        self.database.close()


def run(folder, source, story, **settings):
    async def play():
        portal = Portal(folder, source, **settings)
        try:
            await portal.core.follower.look()
            await story(portal)
        finally:
            await portal.close()

    asyncio.run(play())


def source_of(reader):
    return OarDatabase(ForeignDatabase(parse_address(reader), "OAR's database"))


def test_the_portal_shows_what_oar_has(oar, tmp_path):
    _, reader = oar

    async def story(portal):
        assert [health.says for health in portal.core.follower.health] == [""] * 4
        jobs = (await portal.ask("jobs.list", states=["Running", "Waiting", "Terminated", "Error"])).jobs
        assert [(job.id, job.state, job.owner, job.walltime, job.start or job.scheduled) for job in jobs] == [
            (1, "Terminated", "ann", 3600, NOW - 4000), (2, "Running", "bob", 3600, NOW - 600),
            (3, "Waiting", "ann", 3600, NOW + 3000), (4, "Error", "<script>alert(1)</script>", 3600, None),
        ]  # fmt: skip
        shown = await portal.ask("jobs.show", id=2)
        assert (shown.project, shown.types, shown.queue) == ("physics", ("besteffort",), "default")
        assert (await portal.ask("jobs.why", id=3)).says == "R=4,W=1:0:0,J=B"
        overview = await portal.ask("overview")
        assert [(node.name, node.state, node.cores, node.held, node.users) for node in overview.nodes] == [
            ("node1", "alive", 2, 2, {"bob": 2}), ("node2", "suspected", 2, 0, {})
        ]  # fmt: skip
        assert [(queue.name, queue.active, queue.waiting, queue.running) for queue in overview.queues] == [
            ("default", True, 1, 1), ("night", False, 0, 0)
        ]  # fmt: skip
        chart = await portal.ask("gantt", since=NOW - 5000, until=NOW + 9000)
        assert {bar.id: (bar.start, bar.stop, bar.resources) for bar in chart.jobs} == {
            1: (NOW - 4000, NOW - 3000, [1]), 2: (NOW - 600, NOW + 3000, [1, 2]),
            3: (NOW + 3000, NOW + 6600, [1, 3]),
        }  # fmt: skip
        assert [(bar.resource, bar.state, bar.start) for bar in chart.states] == [(4, "Suspected", NOW - 1000)]
        assert chart.nodes == {"node1": [1, 2], "node2": [3, 4]}
        [row] = [row for row in (await portal.ask("resources.list")).resources if row["resource_id"] == 3]
        assert row["wattage"] == 150
        where = await portal.ask("overview", where="network_address = 'node2' AND wattage > 100")
        assert [node.name for node in where.nodes] == ["node2"]
        assert [event.type for event in (await portal.ask("jobs.events", id=4)).events] == ["FRAG_JOB_REQUEST"]

    run(tmp_path, source_of(reader), story)


def test_what_changes_in_oar_is_seen_at_the_next_look(oar, tmp_path):
    engine, reader = oar

    async def story(portal):
        with engine.begin() as tx:
            tx.execute(text(f"UPDATE jobs SET state = 'Terminated', stop_time = {NOW}, exit_code = 0 WHERE job_id = 2"))
            tx.execute(text("DELETE FROM jobs WHERE job_id = 3"))
            tx.execute(text("UPDATE resources SET state = 'Alive' WHERE resource_id = 4"))
        await portal.core.follower.look()
        states = {
            job.id: job.state
            for job in (await portal.ask("jobs.list", states=["Running", "Waiting", "Terminated", "Error"])).jobs
        }
        assert states == {1: "Terminated", 2: "Terminated", 3: "Error", 4: "Error"}
        overview = await portal.ask("overview")
        assert [(node.state, node.held) for node in overview.nodes] == [("alive", 0), ("alive", 0)]

    run(tmp_path, source_of(reader), story)


def test_nothing_is_changed_there_and_others_jobs_stay_hidden(oar, tmp_path):
    _, reader = oar
    database = ForeignDatabase(parse_address(reader), "OAR's database")
    with pytest.raises(SourceAway, match=r"(?i)read.only|denied"), database.read() as tx:
        tx.execute(text("DELETE FROM jobs"))
    database.close()

    async def story(portal):
        for name, fields in (("jobs.delete", {"ids": [2]}), ("resources.state", {"ids": [1], "state": "Dead"})):
            with pytest.raises(Forbidden, match="changes nothing there"):
                await portal.ask(name, **fields)
        listed = (await portal.ask("jobs.list", ANN, states=["Running", "Waiting", "Terminated", "Error"])).jobs
        assert [job.id for job in listed] == [1, 3]
        with pytest.raises(UnknownJob):
            await portal.ask("jobs.show", ANN, id=2)

    run(tmp_path, source_of(reader), story, job_visibility=JobVisibility.OWN)


@pytest.mark.parametrize("oar", ["postgresql"], indirect=True)
def test_a_source_that_is_away_costs_a_sentence(oar, tmp_path):
    engine, reader = oar

    async def story(portal):
        with engine.begin() as tx:
            tx.execute(text("REVOKE SELECT ON resources FROM oar_ro"))
        await portal.core.follower.look()
        health = {row.name: row.says for row in (await portal.ask("sources.health")).sources}
        assert health == {
            "OAR's database: nodes": "OAR's database does not answer: permission denied for table resources.",
            "OAR's database: jobs": "", "OAR's database: ended jobs": "", "OAR's database: events": "",
        }  # fmt: skip
        assert len((await portal.ask("overview")).nodes) == 2  # as it was last
        with engine.begin() as tx:
            tx.execute(text("GRANT SELECT ON resources TO oar_ro"))
        await portal.core.follower.look()
        assert all(row.answers for row in (await portal.ask("sources.health")).sources)

    run(tmp_path, source_of(reader), story)


@pytest.mark.parametrize("oar", ["postgresql"], indirect=True)
def test_every_verb_that_reads_works_on_a_copy(oar, tmp_path):
    """None of them needs more of a server than a portal has."""
    _, reader = oar
    needs = {"id": 2, "name": "node1", "ids": [2], "since": NOW - 9, "until": NOW, "md5sum": "0" * 32, "size": 1}

    async def story(portal):
        for verb in VERBS.values():
            if verb.method != "GET" or verb.upgrades:
                continue
            required = [field.encode_name for field in msgspec.structs.fields(verb.request) if field.required]
            try:
                await portal.ask(verb.name, **{name: needs[name] for name in required})
            except OarlockError:
                continue

    run(tmp_path, source_of(reader), story)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("", "not the address"), ("oar", "not the address"), ("sqlite:///x", "begins with `sqlite://`"),
        ("postgresql://oar_ro:secret@host/oar", "holds a password"), ("http://x", "begins with"),
    ],
)  # fmt: skip
def test_addresses_that_are_none_are_refused(address, says):
    with pytest.raises(ConfigRefused, match=says):
        parse_address(address)
