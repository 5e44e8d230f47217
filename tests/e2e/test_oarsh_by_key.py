"""oarsh by the key of a job: without an account or a token, and from one cluster to another."""

import json
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from oarlock.client import Client
from oarlock.model.job import JobState
from oarlock.node.wire.stream import CONTROL, LENGTH_BYTES, decode_length, encode_frame
from tests.bed import needs_root, open_directory
from tests.e2e.instance import SOURCE, Instance, instance
from tests.e2e.terminal import job_of, piped

pytestmark = [needs_root, pytest.mark.component("sshd")]

BOTH = "/network_address=2/core=1,walltime=1"
GROUP = 'grep -o "/[^/]*/[^/]*$" /proc/self/cgroup | tail -1'


def made_key(folder: Path, user: str, name: str, *kind: str, passphrase: str = "") -> Path:
    """Make a key in a file of a user's."""
    path = folder / name
    subprocess.run(["ssh-keygen", "-q", *(kind or ("-t", "ed25519")), "-N", passphrase, "-f", path], check=True)
    os.chown(path, pwd.getpwnam(user).pw_uid, -1)
    return path


def copied(key: Path, user: str) -> Path:
    """Copy a key to a file of another user's."""
    copy = Path(shutil.copy(key, key.with_name(f"{key.name}.{user}")))
    os.chown(copy, pwd.getpwnam(user).pw_uid, -1)
    return copy


def address_of(site: Instance) -> str:
    """Return where a server listens for other machines."""
    named = dict(re.findall(r'^(\w+)="(.*)"$', site.settings.read_text(), re.MULTILINE))
    return f"http://{named['SERVER_HOSTNAME']}:{named['SERVER_PORT']}"


def running(site: Instance, user: str, *words: str) -> int:
    """Submit a job and wait until it runs."""
    code, out, err = piped(site, user, *words, "sleep 3600")
    assert code == 0, err
    job = job_of(out.encode())
    site.until(lambda: site.job(job).state is JobState.RUNNING)
    return job


def run(
    programs: Path, site: Instance, user: str, *words: str, key: object, more: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run `oarsh` over the network as a user who has no token but the file of a key."""
    account = pwd.getpwnam(user)
    variables = {
        "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(site.home), "PYTHONPATH": str(SOURCE),
        "OARLOCK_SERVER": address_of(site), "OAR_JOB_KEY_FILE": str(key),
    }  # fmt: skip
    return subprocess.run(
        ["oarsh", *words], env={**variables, **(more or {})}, cwd=site.home, user=account.pw_uid, group=account.pw_gid,
        extra_groups=[], input="in\n", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def keyed(shop, users):
    """A job on both nodes, and the file of its key."""
    key = made_key(shop.home, users[0], "job.key")
    job = running(shop, users[0], "-i", str(key), "-l", BOTH)
    yield job, key
    shop.delete(job)


@pytest.mark.manual(24)
def test_whoever_has_the_key_enters_the_job_without_account_or_token(shop, users, programs, keyed):
    job, key = keyed
    for who, file in ((users[0], key), (users[1], copied(key, users[1]))):
        ran = run(programs, shop, who, shop.nodes[1], f"cat; id -un; {GROUP}; exit 4", key=file)
        group = f"/{shop.nodes[1]}/{users[0]}_{job}"
        assert (ran.returncode, ran.stdout.split()) == (4, ["in", users[0], group]), ran.stderr
    named = run(programs, shop, users[0], shop.nodes[0], "true", key=key, more={"OAR_JOB_ID": str(job)})
    assert (named.returncode, named.stderr) == (0, "")


@pytest.mark.parametrize("kind", [("rsa", "2048"), ("ecdsa", "384"), ("ecdsa", "521")], ids="-".join)
def test_every_kind_of_key_that_a_job_may_have_opens_it(shop, users, programs, kind):
    key = made_key(shop.home, users[0], "-".join(kind), "-t", kind[0], "-b", kind[1])
    job = running(shop, users[0], "-i", str(key), "-p", f"network_address='{shop.nodes[0]}'")
    ran = run(programs, shop, users[0], shop.nodes[0], "echo $OAR_JOB_ID", key=key)
    assert (ran.returncode, ran.stdout) == (0, f"{job}\n"), ran.stderr
    shop.delete(job)


def test_a_key_that_opens_nothing_is_refused_in_one_sentence(shop, users, programs, keyed):
    job, key = keyed
    stranger, locked = (
        made_key(shop.home, users[0], "none"),
        made_key(shop.home, users[0], "locked", passphrase="secret"),
    )
    elsewhere = {"OAR_JOB_ID": str(job + 1000)}
    for words, file, more, code, says in [
        ((shop.nodes[0], "id"), stranger, {}, 255, "No job that is not over has the key SHA256:"),
        (
            (shop.nodes[0], "id"),
            key,
            elsewhere,
            255,
            f"Job {job + 1000} is over, or its key is another one than the key",
        ),
        (("nowhere", "id"), key, {}, 6, f"nowhere is not a node of job {job}."),
        ((shop.nodes[0], "id"), locked, {}, 255, f"ssh-keygen cannot sign with {locked}: "),
        (
            (shop.nodes[0], "id"),
            "/no/key",
            {},
            255,
            "The key /no/key of $OAR_JOB_KEY_FILE cannot be read: No such file",
        ),
        ((shop.nodes[0], "id"), shop.home, {}, 255, "cannot be read: Is a directory"),
        ((shop.nodes[0], "id"), "/etc/hostname", {}, 255, "ssh-keygen cannot sign with /etc/hostname: "),
        ((shop.nodes[0], "id"), copied(key, users[1]), {}, 255, "cannot be read: Permission denied"),
    ]:
        ran = run(programs, shop, users[0], *words, key=file, more=more)
        assert (ran.returncode, ran.stdout) == (code, ""), (file, ran.stderr)
        assert ran.stderr.startswith("oarsh: "), ran.stderr
        assert says in ran.stderr.splitlines()[0], ran.stderr


def test_a_proof_is_good_for_one_challenge_and_one_purpose(shop, users, keyed):
    job, key = keyed

    def answered(signed: str | None, namespace: str = "oarlock-session", text: str | None = None) -> dict[str, object]:
        """Connect by key, sign something (by default the challenge), and return what the server says to it."""
        connection, rest = Client(address_of(shop)).session(by_key=True)
        data = bytearray(rest)

        def frame() -> dict[str, object]:
            while len(data) < LENGTH_BYTES or len(data) < LENGTH_BYTES + decode_length(bytes(data[:LENGTH_BYTES])):
                data.extend(connection.recv(1 << 16))
            end = LENGTH_BYTES + decode_length(bytes(data[:LENGTH_BYTES]))
            payload = bytes(data[LENGTH_BYTES:end])
            del data[:end]
            return json.loads(payload[1:])

        challenge = str(frame()["challenge"])
        proof = text
        if proof is None:
            proof = subprocess.run(
                ["ssh-keygen", "-Y", "sign", "-n", namespace, "-f", key], input=signed or challenge, text=True,
                capture_output=True, check=True,
            ).stdout  # fmt: skip
        request = {"session": os.urandom(16).hex(), "node": shop.nodes[0], "command": "true", "proof": proof}
        connection.sendall(encode_frame(CONTROL + json.dumps(request).encode()))
        answer = frame()
        connection.close()
        return answer

    assert answered(None)["event"] == "session"
    for bad in (answered("0" * 64), answered(None, namespace="file"), answered(None, text="no signature")):
        assert bad["refused"]["kind"] == "BadKeyProof", bad
    assert shop.job(job).state is JobState.RUNNING


@pytest.mark.manual(24, 190)
def test_oarsh_goes_from_cluster_to_cluster_with_one_key(shop, users, programs):
    with open_directory() as workspace:
        more = {"OARSH_SERVERS": f"{address_of(shop)} http://127.0.0.1:9"}
        with instance(workspace, users[0], f"k{os.getpid()}n", nodes=1, more=more) as other:
            other.serve()
            key = made_key(shop.home, users[0], "grid")
            there = running(shop, users[0], "-i", str(key), "-p", f"network_address='{shop.nodes[1]}'")
            script = (
                f"echo in | oarsh {shop.nodes[1]} 'cat; echo $OAR_JOB_ID; {GROUP}; exit 3'; echo $?; oarsh nowhere id"
            )
            code, out, err = piped(other, users[0], "-i", str(key), script)
            assert code == 0, err
            here = job_of(out.encode())
            other.until(lambda: other.job(here).state is JobState.TERMINATED)
            errors = (other.home / f"OAR.{here}.stderr").read_text()
            output = (other.home / f"OAR.{here}.stdout").read_text().split()
            group = f"/{shop.nodes[1]}/{users[0]}_{there}"
            assert output == ["in", str(there), group, "3"], errors
            assert errors.startswith(f"oarsh: nowhere is not a node of job {here}."), errors
            assert "No server answers at http://127.0.0.1:9" in errors
            without = job_of(piped(other, users[0], f"oarsh {shop.nodes[1]} id")[1].encode())
            other.until(lambda: other.job(without).state is JobState.TERMINATED)
            assert (other.home / f"OAR.{without}.stdout").read_text() == ""
            shop.delete(there)
