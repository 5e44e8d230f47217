"""Mails as messages: their headers, the kinds that a user can refuse, and links by which one is refused."""

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from enum import StrEnum
from urllib.parse import urlencode

from oarlock.config import Config
from oarlock.insight.addresses import read_addresses
from oarlock.store.engine import facts
from oarlock.store.engine.tx import Tx

_KEY = "mail key"


class MailKind(StrEnum):
    """Mails that nobody asked for, which a user can refuse by kind."""

    WEEK = "week"
    MONTH = "month"
    ADVICE = "advice"
    JOB = "job"


KINDS: Mapping[MailKind, str] = {
    MailKind.WEEK: "A weekly digest of what was found about your jobs",
    MailKind.MONTH: "A monthly report of each project that you lead",
    MailKind.ADVICE: "Advice that staff send about one of your jobs",
    MailKind.JOB: "A report of your jobs when they ended",
}
"""What each kind is, in a few words."""

DIGEST_OF_WEEK = "digest.week"
JOB_REPORT = "job.report"
STAFF_WEEK = "staff.week"
STAFF_MONTH = "staff.month"
LEADER_MONTH = "leader.month."
"""How the rule of a monthly report to the leader of a project begins; the project follows."""
ADVICE = "advice."
"""How the rule of a mail with advice begins; the id of the finding follows."""


def kind_of(rule: str) -> MailKind | None:
    """Return the kind of the mails of a rule; None for those that cannot be refused."""
    if rule in {DIGEST_OF_WEEK, JOB_REPORT}:
        return MailKind.WEEK if rule == DIGEST_OF_WEEK else MailKind.JOB
    if rule.startswith(LEADER_MONTH):
        return MailKind.MONTH
    return MailKind.ADVICE if rule.startswith(ADVICE) else None


def build_mail(
    to: Sequence[str],
    subject: str,
    text: str,
    *,
    sender: str,
    html: str = "",
    headers: Mapping[str, str] | None = None,
) -> EmailMessage:
    """Build a mail; raise `ValueError` for an address or a subject that would add header lines."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = sender, ", ".join(to), subject
    message["Date"], message["Message-ID"] = formatdate(localtime=True), make_msgid(domain="oarlock")
    for name, value in (headers or {}).items():
        message[name] = value
    message.set_content(text)
    if html:
        message.add_alternative(html, subtype="html")
    return message


def sender_of(config: Config) -> str:
    """Return the sender of all mails."""
    return config.mail_sender or "oarlock@localhost"


def user_address(config: Config, user: str) -> str:
    """Return the address of a user; empty where the site names neither it nor how addresses are made."""
    listed = read_addresses(config.mail_addresses).get(user, "")
    return listed or (f"{user}@{config.mail_user_domain}" if config.mail_user_domain else "")


def has_addresses(config: Config) -> bool:
    """Return whether the site has told where users are mailed."""
    return bool(config.mail_user_domain) or config.mail_addresses is not None


def portal_address(config: Config) -> str:
    """Return the address of the portal, as browsers see it."""
    scheme = "https" if config.tls_certificate is not None or config.tls_ended_by_proxy else "http"
    return config.portal_url.rstrip("/") or f"{scheme}://{config.server_hostname}:{config.server_port}"


def mail_key(tx: Tx) -> bytes:
    """Return the key that signs links in mails; made when it is needed first. The transaction may write."""
    return bytes.fromhex(facts.get_or_set(tx, _KEY, secrets.token_hex(32)))


def stored_mail_key(tx: Tx) -> bytes | None:
    """Return the key that signs links in mails; None before the first mail with one."""
    stored = facts.get(tx, _KEY)
    return None if stored is None else bytes.fromhex(stored)


def signature(key: bytes, user: str, kind: MailKind) -> str:
    """Return what proves that a link was made for this user and this kind of mails."""
    return hmac.new(key, f"{kind.value}\0{user}".encode(), hashlib.sha256).hexdigest()


def is_signed(key: bytes | None, user: str, kind: MailKind, claimed: str) -> bool:
    """Return whether a signature is right; without a key there is none that is."""
    return key is not None and hmac.compare_digest(signature(key, user, kind).encode(), claimed.encode())


def unsubscribe_link(config: Config, key: bytes, user: str, kind: MailKind) -> str:
    """Return the address of the page by which a user refuses a kind of mails; empty where there is no portal."""
    if not config.portal:
        return ""
    query = urlencode({"user": user, "kind": kind.value, "key": signature(key, user, kind)})
    return f"{portal_address(config)}/unsubscribe?{query}"


def unsubscribe_headers(link: str) -> dict[str, str]:
    """Return the headers by which mail programs show a button for it (RFC 2369 and 8058)."""
    if not link:
        return {}
    return {"List-Unsubscribe": f"<{link}>", "List-Unsubscribe-Post": "List-Unsubscribe=One-Click"}
