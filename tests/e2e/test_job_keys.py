"""Job keys from the command to the node and back to nothing: generated, brought, exported."""

import os
import pwd
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from oarlock.client import Client
from oarlock.model.job import FINAL, JobState
from oarlock.store.queries.job import job_keys
from tests.bed import needs_root
from tests.e2e.instance import SOURCE, Instance
from tests.e2e.terminal import command_of, job_of, piped

pytestmark = [needs_root, pytest.mark.component("sshd")]

BOTH = "/network_address=2/core=1,walltime=1"


@pytest.fixture
def pair(shop, users):
    """A key of the first user, in a file of that user's: its path, its public half, and a piece of its secret."""
    path = shop.home / f"key{os.urandom(4).hex()}"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path], check=True)
    for each in (path, path.with_suffix(".pub")):
        os.chown(each, pwd.getpwnam(users[0]).pw_uid, -1)
    return path


def submitted(site: Instance, user: str, *words: str) -> int:
    code, out, err = piped(site, user, *words)
    assert code == 0, err
    return job_of(out.encode())


def running(site: Instance, job: int) -> None:
    site.until(lambda: site.job(job).state is JobState.RUNNING)


def key_files(site: Instance) -> list[Path]:
    return sorted((site.state / "run").glob("*/*.key"))


def kept_keys(site: Instance) -> list[Path]:
    """List the keys that the server keeps."""
    return sorted((site.state / "keys").glob("*"))


def resume(site: Instance, job: int) -> None:
    [answer] = Client(str(site.state / "server.sock")).resume({"ids": [job]})
    assert answer["done"], answer


def key_of(site: Instance, job: int) -> job_keys.JobKey:
    with site.database.read() as tx:
        return job_keys.of_jobs(tx, [job])[job]


def public_half(path: Path) -> str:
    shown = subprocess.run(["ssh-keygen", "-y", "-f", path], check=True, capture_output=True, text=True).stdout
    return " ".join(shown.split()[:2])  # without a comment


@pytest.mark.manual(23)
def test_a_generated_pair_is_made_on_the_first_node_and_stays_there(shop, users):
    shows = "stat -c '%U %a' $OAR_JOB_KEY_FILE; ssh-keygen -y -f $OAR_JOB_KEY_FILE; echo $OAR_KEY; sleep 600"
    code, out, err = piped(shop, users[0], "-k", "-l", BOTH, shows)
    job = job_of(out.encode())
    assert (code, "Generate a job key..." in out.splitlines()) == (0, True), err
    running(shop, job)
    output = shop.home / f"OAR.{job}.stdout"
    shop.until(lambda: output.exists() and output.read_text().count("\n") == 3)
    mode, public, has_key = output.read_text().splitlines()
    assert (mode, has_key, [path.parent.name for path in key_files(shop)]) == (f"{users[0]} 400", "1", [shop.nodes[0]])
    stored = key_of(shop, job)
    assert (stored.public.split()[:2], stored.is_imported) == (public.split()[:2], False)
    assert kept_keys(shop) == []
    shop.delete(job)
    shop.until(shop.all_over)
    assert key_files(shop) == []


@pytest.mark.manual(24)
def test_a_key_that_was_brought_is_on_all_nodes_and_gone_at_the_end(shop, users, pair):
    code, out, err = piped(shop, users[0], "-i", pair.name, "-l", BOTH, "sleep 600")
    job = job_of(out.encode())
    assert (code, f"Import job key from file: {pair.name}" in out.splitlines()) == (0, True), err
    running(shop, job)
    files = key_files(shop)
    assert [path.parent.name for path in files] == shop.nodes
    assert {public_half(path) for path in files} == {public_half(pair)}
    assert len(kept_keys(shop)) == 1
    other, _, refused = piped(shop, users[1], "-i", str(readable_copy(pair)), "true")
    assert (other, "A job of another user has this key" in refused) == (1, True)
    assert submitted(shop, users[0], "-i", pair.name, "true")
    shop.delete(job)
    shop.until(shop.all_over)
    shop.until(lambda: kept_keys(shop) == [])
    assert key_files(shop) == []
    assert piped(shop, users[1], "-i", str(readable_copy(pair)), "true")[0] == 0  # nobody has it any more


def readable_copy(path: Path) -> Path:
    copy = path.with_name(f"{path.name}.copy")
    copy.write_bytes(path.read_bytes())
    return copy


@pytest.mark.manual(26)
def test_an_exported_key_is_the_jobs_own_and_the_users_alone(shop, users):
    code, out, err = piped(shop, users[0], "-k", "-e", "key.%jobid%", "-l", BOTH, "sleep 600")
    job = job_of(out.encode())
    wanted = ["Generate a job key...", f"Export job key to file: key.{job}", f"OAR_JOB_ID={job}"]
    assert (code, [line for line in out.splitlines() if line in wanted]) == (0, wanted), err
    about = (shop.home / f"key.{job}").stat()
    assert (about.st_uid, stat.S_IMODE(about.st_mode)) == (pwd.getpwnam(users[0]).pw_uid, 0o600)
    running(shop, job)
    assert {public_half(path) for path in key_files(shop)} == {public_half(shop.home / f"key.{job}")}
    shop.delete(job)
    shop.until(shop.all_over)


@pytest.mark.manual(33)
def test_the_older_names_of_the_options_bring_a_key_as_well(shop, users, pair):
    private, public = pair.read_text(), pair.with_suffix(".pub").read_text()
    job = submitted(shop, users[0], "--ssh_private_key", private, "--ssh_public_key", public, "--hold", "true")
    assert key_of(shop, job).public.split()[:2] == public.split()[:2]
    another = " ".join(["ssh-ed25519", public.split()[1].swapcase()])
    code, out, err = piped(shop, users[0], "--ssh_private_key", private, "--ssh_public_key", another, "true")
    assert (code, "OAR_JOB_ID" in out, "is not the one that belongs to the private key" in err) == (1, False, True), err
    shop.delete(job)


def test_a_job_like_one_with_a_key_of_its_users_has_one_of_its_own(shop, users, pair):
    job = submitted(shop, users[0], "-i", pair.name, "true")
    shop.until(lambda: shop.job(job).state in FINAL)
    again = submitted(shop, users[0], "--resubmit", str(job))
    assert (key_of(shop, job).is_imported, key_of(shop, again).is_imported) == (True, False)
    shop.until(lambda: shop.job(again).state in FINAL)


def test_a_key_has_no_place_on_a_line_of_a_script(shop, users, pair):
    for line, code in ((f"#OAR -i {pair}", 12), ("#OAR -k", 0)):
        script = shop.home / f"script{os.urandom(4).hex()}"
        script.write_text(f"#!/bin/sh\n{line}\ntrue\n")
        script.chmod(0o755)
        ended, _, err = piped(shop, users[0], "-S", f"./{script.name}")
        assert ended == code, err
    shop.until(shop.all_over)


@pytest.mark.manual(25)
def test_a_private_key_is_written_nowhere_and_shown_to_nobody(shop, users, pair):
    typed = secrets_of(pair)
    inline = f"--import-job-key-inline={pair.read_text()}"
    process = command_of(shop, users[0], inline, "-l", BOTH, "-I", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    job = job_of(b"".join(iter(lambda: read_line(process, b"OAR_JOB_ID"), b"")))
    running(shop, job)
    shown = subprocess.run(
        [sys.executable, "-c", _OARSTAT, "-fj", str(job), "-J"], capture_output=True, check=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "OARLOCK_SERVER": str(shop.state / "server.sock")},
    ).stdout  # fmt: skip
    secrets = typed | secrets_of(key_files(shop)[0])  # it is written in one form, which need not be the user's
    assert (b"(a private key)" in shown, holds(shown, secrets)) == (True, False)
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if holds(arguments(path), secrets)]
    assert places_of(secrets, shop.state) == key_files(shop) != []
    process.communicate(b"exit\n", timeout=30)
    shop.until(shop.all_over)
    shop.until(lambda: kept_keys(shop) == [])
    assert places_of(secrets, shop.state) == []


_OARSTAT = "import sys; from oarlock.cli.jobs.oarstat import main; sys.exit(main())"


def read_line(process, last: bytes) -> bytes:
    """Read a line; nothing after the one that begins with `last`."""
    if getattr(process, "was_last", False):
        return b""
    line = process.stdout.readline()
    process.was_last = line.startswith(last) or not line
    return line


def secrets_of(path: Path) -> set[bytes]:
    """Return pieces of a private key that stand in no other text: those lines that are not of its public half."""
    return set(path.read_bytes().splitlines()[3:-2])


def holds(text: bytes, secrets: set[bytes]) -> bool:
    return any(secret in text for secret in secrets)


def arguments(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process is gone
        return b""


def places_of(secrets: set[bytes], folder: Path) -> list[Path]:
    """Find the files that hold one of these texts: the database, its log, the spool, everything."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and holds(path.read_bytes(), secrets))


def test_keys_outlive_a_killed_server_and_orphans_do_not(own, users):
    key = own.home / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "", "-f", key], check=True)
    key.chmod(0o644)
    job = submitted(own, users[0], "-i", "key", "--hold", "--array", "2", "sleep 600")
    [stored] = kept_keys(own)
    own.kill()
    orphan, half = stored.with_name("ab" * 32), stored.with_name("new.cd")
    orphan.write_bytes(b"of a job that was never stored")
    half.write_bytes(b"half")
    own.serve()
    own.until(lambda: kept_keys(own) == [stored])
    resume(own, job)
    running(own, job)
    own.delete(job)
    own.until(lambda: own.job(job).state in FINAL)
    assert kept_keys(own) == [stored]  # the other one of the array waits for it
    stored.unlink()  # as after the restore of an old backup
    resume(own, job + 1)
    own.until(lambda: own.job(job + 1).state is JobState.ERROR)
    assert "JOB_KEY_LOST" in own.events(job + 1)
    assert "the key of job" in own.job(job + 1).message
    assert key_files(own) == []
