"""Archives of stage-in on the server: whose they are, what is refused, and how long they are kept."""

import asyncio
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.model.job import JobState, move
from oarlock.server.staging.stage_in import ArchiveStore
from oarlock.store.engine.database import Database
from oarlock.store.queries.job import jobs, moves
from tests.clusters import add_nodes
from tests.node.archives import archive, changed
from tests.web.nodeless_server import NOW, Client, Reply, Running, running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

ARCHIVE = archive({"in/data": b"x" * 5000})
JOB = {"command": "true", "resources": ["/resource_id=1,walltime=1"], "directory": "/"}
ADA, BOB = "nobody", "daemon"


@pytest.fixture
def api(database: Database) -> Iterator[Running]:
    database.write(lambda tx: add_nodes(tx, ["node1"]))
    with running(database, job_min_uid=1, stagein_max_size=1, stagein_max_per_user=2) as api:
        yield api


def send(client: Client, data: bytes, *, size: int | None = None, md5sum: str = "") -> Reply:
    about = f"size={len(data) if size is None else size}" + (f"&md5sum={md5sum}" if md5sum else "")
    return client.ask("PUT", f"/files?{about}", data)


def kept(api: Running) -> list[str]:
    folder = api.core.state_dir / "stageins"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_an_archive_is_stored_once_and_is_its_senders_alone(api: Running):
    ada, bob = api.client_of(ADA), api.client_of(BOB)
    sums = {"md5sum": hashlib.md5(ARCHIVE).hexdigest(), "sha256": hashlib.sha256(ARCHIVE).hexdigest()}
    first = send(ada, ARCHIVE, md5sum=sums["md5sum"]).body
    assert first == {"file_id": 1, **sums}
    assert send(ada, ARCHIVE).body == first
    for name, value in sums.items():
        assert ada.get(f"/files?{name}={value}").body == {"file_id": 1}
        assert bob.get(f"/files?{name}={value}").body == {"file_id": None}
    refused = bob.post("/jobs", JOB | {"file_id": 1})
    assert (refused.status, refused.body["error"]) == (400, "You have no archive 1 on the server, or no longer.")
    assert send(bob, ARCHIVE).body["file_id"] == 2
    assert kept(api) == [sums["sha256"]]
    [job] = ada.post("/jobs", JOB | {"file_id": 1, "array": ["1"]}).body["job_ids"]
    with api.core.database.read() as tx:
        assert jobs.get(tx, job).file_id == 1


BAD: list[tuple[bytes, dict[str, object], str]] = [
    (ARCHIVE, {"md5sum": "0" * 32}, f"The archive has the MD5 sum {hashlib.md5(ARCHIVE).hexdigest()}, not 000000"),
    (archive({"l": changed(type=b"2", linkname="/")}), {}, "The archive is not taken: l is a link"),
    (archive({"../x": b""}), {}, "The archive is not taken: ../x leads out of the directory."),
    (b"no archive", {}, "The archive is not taken: it is not a tar archive compressed with gzip."),
    (ARCHIVE, {"size": (1 << 20) + 1}, "The archive has 2 MiB; 1 MiB are taken at most."),
    (ARCHIVE, {"size": 7}, "The archive was to have 7 bytes, and "),
    (ARCHIVE, {"size": 0}, "`size` must be a whole number of at least 1."),
]


def test_an_archive_that_is_refused_leaves_nothing(api: Running):
    client = api.client_of(ADA)
    for data, more, why in BAD:
        reply = send(client, data, **more)  # type: ignore[arg-type]
        assert (reply.status, reply.body["error"][: len(why)]) == (400, why)
    assert kept(api) == []


def test_a_user_fills_no_more_than_a_share_of_the_disk(api: Running):
    ada = api.client_of(ADA)
    replies = [send(ada, archive({"f": os.urandom(900_000)})) for _ in range(3)]
    assert [reply.status for reply in replies] == [200, 200, 400]
    assert replies[2].body["error"] == "Your archives would have 3 MiB together; 2 MiB are kept at most."
    assert send(api.client_of(BOB), ARCHIVE).status == 200


def test_a_full_disk_is_a_sentence_and_leaves_nothing(api: Running, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("oarlock.server.staging.stage_in._SPARE", 1 << 60)
    reply = send(api.client_of(ADA), ARCHIVE)
    assert (reply.status, reply.body["error"]) == (400, "The server cannot keep the archive: No space left on device.")
    assert kept(api) == []


def test_archives_are_removed_when_nobody_needs_them(api: Running):
    ada, later = api.client_of(ADA), NOW + 145 * 3600
    used, unused = (send(ada, archive({"f": text})).body for text in (b"1", b"2"))
    [job] = ada.post("/jobs", JOB | {"file_id": used["file_id"]}).body["job_ids"]
    leftover: Path = api.core.state_dir / "stageins" / f"upload.{'0' * 16}"
    leftover.touch()
    os.utime(leftover, (0, 0))
    store = ArchiveStore(api.core.config, leftover.parent, api.core)
    asyncio.run(store.remove_unused(now=NOW + 143 * 3600))
    assert kept(api) == sorted([used["sha256"], unused["sha256"]])
    asyncio.run(store.remove_unused(now=later))
    assert kept(api) == [used["sha256"]]  # its job waits
    with api.core.database.read() as tx:
        ended = move(jobs.get(tx, job), JobState.ERROR, at=later, why="test")
    api.core.database.write(lambda tx: moves.record(tx, [ended]))
    asyncio.run(store.remove_unused(now=later))
    assert kept(api) == []
    again = ada.post("/jobs", {"resubmit": job})
    assert (again.status, again.body["kind"]) == (400, "StageInRefused")
