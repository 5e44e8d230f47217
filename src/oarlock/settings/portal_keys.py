"""Settings of portals: ways to sign in besides `oarlock login`, and the cluster of others that is shown."""

from collections.abc import Mapping
from dataclasses import dataclass

from oarlock.settings import kinds
from oarlock.settings.kinds import SettingSection
from oarlock.settings.secret import Secret

_SIGN_IN = SettingSection("Signing in to the portal")
_HEADER = kinds.matching("the name of a header (letters, digits, -), or nothing", r"([A-Za-z][A-Za-z0-9-]*)?")


@dataclass(frozen=True, kw_only=True)
class SignInSettings:
    """Settings of signing in to the portal."""

    portal_user_header: str = _SIGN_IN(
        _HEADER,
        "",
        "The header in which a proxy names the user whom it signed in, such as X-Remote-User. It is believed on the "
        "socket `portal.sock` in the state directory and nowhere else; nothing: there is no such socket.",
    )
    portal_proxy_users: tuple[str, ...] = _SIGN_IN(
        kinds.WORDS,
        (),
        "Accounts whose processes may connect to that socket, such as www-data; nothing means root and the user that "
        "the server runs as.",
    )
    portal_oidc_issuer: str = _SIGN_IN(
        kinds.URL,
        "",
        "The OpenID Connect provider that signs people in (its issuer, an https address); nothing: none does.",
    )
    portal_oidc_client: str = _SIGN_IN(kinds.ANY_TEXT, "", "The client id that the provider gave this portal.")
    portal_oidc_secret: Secret | None = _SIGN_IN(
        kinds.SECRET, None, "The client's secret; a public client has none (PKCE is always used)."
    )
    portal_oidc_claim: str = _SIGN_IN(
        kinds.WORD, "preferred_username", "The claim of the provider's token that is the name of the account here."
    )
    portal_oidc_scopes: tuple[str, ...] = _SIGN_IN(
        kinds.WORDS, ("openid", "profile"), "The scopes that the provider is asked for."
    )
    portal_pam_service: str = _SIGN_IN(
        kinds.PERHAPS_WORD,
        "",
        "The PAM service (a file in /etc/pam.d) that checks passwords typed into the portal; nothing: there are none.",
    )


_SOURCES = SettingSection("Sources (`oarlock portal`)")
_FACILITIES = SettingSection("File systems and virtual machines (pages Storage and Cloud)")


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """Settings of what a portal reads besides its own database."""

    source_database: str = _SOURCES(
        kinds.ANY_TEXT,
        "",
        "The database of OAR or slurmdbd that `oarlock portal --source` reads: postgresql://USER@HOST/DATABASE or "
        "mysql://USER@HOST/DATABASE. Empty for Slurm: sinfo, squeue and sacct are run.",
    )
    source_password: Secret | None = _SOURCES(kinds.SECRET, None, "The password of that account, if it needs one.")
    source_period: int = _SOURCES(
        kinds.whole("a number of seconds from 5 to 3600", least=5, most=3600),
        30,
        "Every so many seconds the source is asked what is new.",
    )
    source_history: int = _SOURCES(
        kinds.whole("a number of days from 1 to 3650", least=1, most=3650),
        30,
        "So many days before its first start a portal copies jobs that are over.",
    )
    prometheus_has: tuple[str, ...] = _FACILITIES(
        kinds.EXPORTERS,
        (),
        "Which exporters PROMETHEUS_URL has the series of, beside those of jobs and nodes: `lustre` (page Storage), "
        "`libvirtd` (page Cloud).",
    )
    robinhood_databases: Mapping[str, str] = _FACILITIES(
        kinds.DATABASES,
        kinds.NO_DATABASES,
        "The databases in which Robinhood has file systems: NAME=mysql://USER@HOST/DATABASE, with blanks between.",
    )
    robinhood_password: Secret | None = _FACILITIES(
        kinds.SECRET, None, "The password of that account, if it needs one."
    )
