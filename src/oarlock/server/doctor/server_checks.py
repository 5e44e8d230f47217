"""Checks of the server's own machine: state directory, database, backup, certificate, mail."""

import os
import smtplib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from oarlock.config import Config
from oarlock.model.errors import OarlockError
from oarlock.server import backups
from oarlock.server.doctor.diagnosis import Diagnosis, broken, disk, fine, warning
from oarlock.server.instance import database_address
from oarlock.store import migrations
from oarlock.store.engine.opening import open_for_check, parse_address
from oarlock.store.queries.site import integrity_site

DiskRoom = Callable[[str], os.statvfs_result]
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
