"""Keys of jobs at the door: stored by their fingerprints, and nowhere else."""

import subprocess

import pytest
from sqlalchemy import update

from oarlock.store.engine.opening import open_database
from oarlock.store.queries.job import job_keys
from oarlock.store.queries.users import user_records
from oarlock.store.tables import jobs
from tests.clusters import add_nodes
from tests.web.nodeless_server import Running, running


@pytest.fixture
def api(tmp_path):
    with open_database(tmp_path / "oarlock.db", create=True) as database:
        database.write(lambda tx: add_nodes(tx, ["node1"], cores=2))
        with running(database) as api:
            yield api


JOB = {"command": "true", "resources": ["core=1"]}


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path.read_text()


def secret_of(key: str) -> str:
    return key.splitlines()[2]


def keys_of(api: Running, *ids: int):
    with api.core.database.read() as tx:
        return job_keys.of_jobs(tx, ids)


def test_a_key_is_asked_for_by_request_script_and_dry_run(api: Running):
    script = {"script": "#!/bin/sh\n#OAR -k\ntrue\n"}
    for wish in ({"use_key": True}, script):
        reply = api.client_of("nobody").post("/jobs", {**JOB, **wish})
        assert (reply.status, reply.body["messages"][-1]) == (200, "Generate a job key...")
        assert keys_of(api, *reply.body["job_ids"]) == {reply.body["job_ids"][0]: job_keys.JobKey()}
    assert api.client_of("nobody").post("/jobs/dry-run", {**JOB, "use_key": True}).status == 200
    assert api.client_of("nobody").post("/jobs/dry-run", {**JOB, "import_key": "x"}).body["kind"] == "BadJobKey"


def test_all_jobs_of_an_array_have_the_key_that_was_brought(api: Running, key):
    reply = api.client_of("nobody").post("/jobs", {**JOB, "import_key": key, "array": ["1", "2"]})
    first, second = reply.body["job_ids"]
    stored = keys_of(api, first, second)
    assert stored[first].public.startswith("ssh-ed25519 ")
    assert stored[second] == stored[first]._replace(public="")
    assert (stored[first].is_imported, stored[first].fingerprint.startswith("SHA256:")) == (True, True)


def test_a_key_of_another_users_job_is_refused_and_nothing_is_stored(api: Running, key):
    [job] = api.client_of("nobody").post("/jobs", {**JOB, "import_key": key}).body["job_ids"]
    assert api.client_of("nobody").post("/jobs", {**JOB, "import_key": key}).status == 200  # one's own is no other's
    api.core.database.write(lambda tx: tx.execute(update(jobs).values(job_user="ada")))
    refused = api.client_of("nobody").post("/jobs", {**JOB, "import_key": key})
    assert (refused.status, refused.body["kind"]) == (409, "JobKeyTaken")
    assert keys_of(api, job + 2) == {}
    api.core.database.write(lambda tx: tx.execute(update(jobs).values(state="Terminated")))
    assert api.client_of("nobody").post("/jobs", {**JOB, "import_key": key}).status == 200


def test_a_private_key_is_in_no_field_log_or_audit(api: Running, key, caplog):
    typed = f"oarsub --import-job-key-inline {key} true"
    asked = {**JOB, "import_key": key, "initial_request": typed}
    made = api.client.post("/jobs", asked, On_Behalf_Of="nobody")
    shown = api.client.get(f"/jobs?ids={made.body['job_ids'][0]}&full=1").body["jobs"][0]
    assert shown["initial_request"] == "oarsub --import-job-key-inline (a private key) true"
    with api.core.database.read() as tx:
        [noted] = user_records.audit_entries(tx, most=10)
    assert "(hidden)" in str(noted)
    assert secret_of(key) not in str(shown) + caplog.text + str(noted)
    for path in api.core.state_dir.rglob("*"):
        assert not path.is_file() or secret_of(key).encode() not in path.read_bytes(), path


def test_a_public_key_alone_is_refused(api: Running):
    refused = api.client_of("nobody").post("/jobs", {**JOB, "public_key": "ssh-ed25519 AAAA"})
    assert (refused.body["kind"], refused.body["error"]) == ("BadJobKey", "A public key alone is of no use to a job.")
