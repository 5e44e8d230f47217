"""Doctor: ask the server's machine and its nodes, and judge the answers."""

import os
import pwd
import smtplib
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from oarlock.config import Config
from oarlock.model.errors import OarlockError
from oarlock.server import backups
from oarlock.server.doctor.diagnosis import Diagnosis, broken, disk, fine, warning
from oarlock.server.doctor.node_checks import LocalView, check_node, check_twins
from oarlock.server.doctor.node_facts import ask_nodes
from oarlock.server.instance import database_address
from oarlock.server.nodes.command import NodeCommand, installed, local, ssh
from oarlock.server.nodes.fleet import node_directories, own_names
from oarlock.settings.kinds import NodeAccess, NodeTransport
from oarlock.store import migrations
from oarlock.store.engine.opening import open_for_check, parse_address
from oarlock.store.queries.site import integrity_site

_MOST_USERS = 500
_NOBODY = 60_000  # numbers from here on are the system's again
_NAME_THREADS = 16

DiskRoom = Callable[[str], os.statvfs_result]


@dataclass(frozen=True, slots=True)
class Patient:
    """What is examined: an instance, its nodes, and the users who must be the same everywhere (default: all here)."""

    state_dir: Path
    config: Config
    nodes: Sequence[str] = ()
    users: Sequence[str] = ()


def examine(
    patient: Patient, *, clock: Callable[[], float] = time.time, room: DiskRoom = os.statvfs
) -> list[Diagnosis]:
    """Run all checks; `clock` and `room` (of a disk) are this machine's."""
    config, nodes = patient.config, list(dict.fromkeys(patient.nodes))
    host = socket.gethostname()
    diagnoses = list(check_server(host, patient.state_dir, config, clock=clock, room=room))
    here = _local_view(host, patient)
    ways = {node: _way(node, config) for node in nodes}
    request = {"users": list(here.users), "paths": [here.spool], "hosts": [host]}
    answers = ask_nodes(ways, request, seconds=config.oar_ssh_connection_timeout, clock=clock)
    for node, answer in answers.items():
        diagnoses += check_node(node, answer, here)
    if config.node_transport is not NodeTransport.LOCAL:  # pretended nodes share this machine on purpose
        diagnoses += check_twins(answers)
    return diagnoses


def _way(node: str, config: Config) -> NodeCommand:
    """Return the way that jobs take to a node."""
    is_here = config.node_transport is NodeTransport.LOCAL
    if is_here or (config.node_transport is NodeTransport.AUTO and node in own_names()):
        return local()
    reach = installed if config.node_access is NodeAccess.INSTALLED else ssh
    return reach(node, command=config.openssh_cmd, connect_seconds=config.oar_ssh_connection_timeout)


def _local_view(host: str, patient: Patient) -> LocalView:
    config, nodes = patient.config, patient.nodes
    is_remote = config.node_transport is not NodeTransport.LOCAL
    with ThreadPoolExecutor(_NAME_THREADS) as threads:
        addresses = dict(zip(nodes, threads.map(_addresses, nodes), strict=True)) if is_remote else {}
        reverse = dict(zip(nodes, threads.map(_reverse, map(addresses.get, nodes)), strict=True))
    return LocalView(
        name=host,
        users=_users(patient.users, config.job_min_uid),
        addresses=addresses,
        names={node: names for node, names in reverse.items() if names is not None},
        spool=str(node_directories(config)[0] if is_remote else patient.state_dir / "spool"),
        counts_events="perf" in config.sample_sources,
    )


def _users(names: Iterable[str], lowest: int) -> dict[str, tuple[int, str, bool]]:
    """Return uid and home of users; those who may run jobs, if none are named."""
    wanted = set(names)
    accounts = [
        account
        for account in pwd.getpwall()
        if (account.pw_name in wanted if wanted else lowest <= account.pw_uid < _NOBODY)
    ]
    for name in wanted - {account.pw_name for account in accounts}:  # directories are not always listed
        try:
            accounts.append(pwd.getpwnam(name))
        except KeyError:
            continue
    return {
        account.pw_name: (account.pw_uid, account.pw_dir, Path(account.pw_dir).is_dir())
        for account in accounts[:_MOST_USERS]
    }


def unknown_users(names: Iterable[str]) -> list[str]:
    """Return those of names that have no account here."""
    there = _users(names, 0)
    return sorted(name for name in names if name not in there)


def _addresses(name: str) -> tuple[str, ...]:
    try:
        return tuple(sorted({str(entry[4][0]) for entry in socket.getaddrinfo(name, None)}))
    except (OSError, UnicodeError):
        return ()


def _reverse(addresses: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the names to which the first address leads back; None where there is no address."""
    if not addresses:
        return None
    try:
        name, others, _ = socket.gethostbyaddr(addresses[0])
    except (OSError, UnicodeError):
        return ()
    return (name, *others)


_DAY = 86400
_OLD_BACKUP_DAYS = 7
_CERTIFICATE_DAYS = 21
_MAIL_SECONDS = 10


def check_server(
    host: str, state_dir: Path, config: Config, *, clock: Callable[[], float] = time.time, room: DiskRoom = os.statvfs
) -> Iterator[Diagnosis]:
    """Yield what can be said of the machine on which this runs."""
    yield disk(host, "disk", str(state_dir), _free(state_dir, room))
    yield _database(host, state_dir, config)
    yield _backup(host, state_dir, clock())
    yield from _certificate(host, config, clock())
    yield _mail(host, config)


def _free(path: Path, room: DiskRoom) -> tuple[int, int] | None:
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        about = room(str(path))
    except OSError:
        return None
    return about.f_bavail * about.f_frsize, about.f_blocks * about.f_frsize


def _database(host: str, state_dir: Path, config: Config) -> Diagnosis:
    where = parse_address(database_address(state_dir, config))
    if isinstance(where, Path) and not where.is_file():
        way_out = "start the server once (`systemctl start oarlock`), or name its directory with --state"
        return broken(host, "database", f"there is none at {where}", way_out)
    try:
        with open_for_check(where) as tx:
            revision, newest = integrity_site.revision(tx), migrations.REVISIONS[-1]
    except OarlockError as error:
        return broken(host, "database", str(error)[:200], "`oarlock check`, or `oarlock restore`")
    if revision != newest:
        way_out = "restart the server: it brings an older form up to date; a newer one needs a newer Oarlock"
        return warning(host, "database", f"has form {revision}, this version uses {newest}", way_out)
    return fine(host, "database", f"{config.db_type}, form {revision}")


def _backup(host: str, state_dir: Path, now: float) -> Diagnosis:
    last = backups.last_backup(state_dir)
    way_out = f"`oarlock backup --state {state_dir} FILE`, nightly from cron or a timer"
    if last is None:
        return warning(host, "backup", "none was made with `oarlock backup`", way_out)
    days = (now - last.at) / _DAY
    sentence = f"the last one is {days:.1f} days old ({last.file})"
    return warning(host, "backup", sentence, way_out) if days > _OLD_BACKUP_DAYS else fine(host, "backup", sentence)


def _certificate(host: str, config: Config, now: float) -> Iterator[Diagnosis]:
    file = config.tls_certificate
    if file is None:
        return
    try:
        days = (certificate_end(file) - now) / _DAY
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not a certificate"
        yield broken(host, "certificate", f"{file} cannot be read: {reason}", "set TLS_CERTIFICATE to a PEM file")
        return
    way_out = "renew it; the server reads the new file by itself"
    if days < 0:
        yield broken(host, "certificate", f"{file} ended {-days:.0f} days ago", way_out)
    elif days < _CERTIFICATE_DAYS:
        yield warning(host, "certificate", f"{file} ends in {days:.0f} days", way_out)
    else:
        yield fine(host, "certificate", f"{file} is good for {days:.0f} days")


def certificate_end(file: Path) -> float:
    """Return when the first certificate of a file ends; `ValueError` if the file holds none."""
    from cryptography import x509  # late: other checks work without loading it

    return x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc.timestamp()


def _mail(host: str, config: Config) -> Diagnosis:
    server = config.mail_smtp_server
    if not server:
        way_out = "set MAIL_SMTP_SERVER, MAIL_SENDER and MAIL_RECIPIENT to hear of trouble"
        return warning(host, "mail", "no mail is sent", way_out)
    try:
        with smtplib.SMTP(server, timeout=_MAIL_SECONDS) as connection:
            connection.noop()
    except (OSError, ValueError, smtplib.SMTPException) as error:
        return warning(host, "mail", f"{server} does not answer: {error}", "correct MAIL_SMTP_SERVER, or start it")
    if not config.mail_recipient:
        return warning(host, "mail", f"{server} answers, and nobody is told", "set MAIL_RECIPIENT")
    return fine(host, "mail", f"{server} answers")
