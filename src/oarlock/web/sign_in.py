"""Sessions of browsers: the cookie, the token of forms, and how a link becomes a session."""

import hashlib
import hmac
import logging
import secrets
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.requests import Request

from oarlock.config import Config
from oarlock.model.errors import Forbidden, NotSignedIn
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.users import browser_sessions
from oarlock.store.queries.users.browser_sessions import SESSION, BrowserSession
from oarlock.web.core import ServerInterface
from oarlock.web.identity import UserAccount, new_token, token_hash

log = logging.getLogger(__name__)

SESSION_SECONDS = 7 * 86_400
"""After so long somebody has to sign in again."""

OIDC_COOKIE = "oarlock-oidc"
_LONGEST_AGENT = 200
_LONGEST_COOKIE = 100
_TRUSTED_SITES = frozenset({"same-origin", "none"})


def is_encrypted(config: Config) -> bool:
    """Return whether browsers reach this server over TLS: its own, or that of a proxy."""
    return config.tls_certificate is not None or config.tls_ended_by_proxy


def cookie_name(config: Config) -> str:
    """Return the name of the session's cookie; with `__Host-` a browser accepts it over TLS and for this host only."""
    return "__Host-oarlock" if is_encrypted(config) else "oarlock"


def set_cookie(config: Config, secret: str, *, seconds: int = SESSION_SECONDS) -> str:
    """Return the header that sets the session's cookie; without a secret it is deleted."""
    secure = "; Secure" if is_encrypted(config) else ""
    age = seconds if secret else 0
    return f"{cookie_name(config)}={secret}; Path=/; Max-Age={age}; HttpOnly; SameSite=Lax{secure}"


def oidc_cookie(config: Config, value: str, *, seconds: int) -> str:
    """Return the header that sets what belongs to a sign-in at a provider; without a value it is deleted."""
    secure = "; Secure" if is_encrypted(config) else ""
    name, age = oidc_cookie_name(config), seconds if value else 0
    return f"{name}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Lax{secure}"


def oidc_cookie_name(config: Config) -> str:
    """Return the name of that cookie."""
    return f"__Host-{OIDC_COOKIE}" if is_encrypted(config) else OIDC_COOKIE


def session_secret(config: Config, cookies: Mapping[str, str]) -> str | None:
    """Return the secret of the session that a browser shows; None if it shows none."""
    secret = cookies.get(cookie_name(config), "")
    return secret if 0 < len(secret) <= _LONGEST_COOKIE else None


def is_proxied(request: Request) -> bool:
    """Return whether a request came on the socket of the proxy that signs people in."""
    return bool(request.scope["state"].get("proxied"))


def proxied_user(request: Request, config: Config) -> str:
    """Return the user whom the proxy names; empty where it names nobody, or the header stands there twice."""
    names = request.headers.getlist(config.portal_user_header) if config.portal_user_header else []
    return names[0] if len(names) == 1 and is_proxied(request) else ""


def is_from_elsewhere(headers: Headers) -> bool:
    """Return whether a browser says that another site sent this request."""
    return headers.get("sec-fetch-site", "none") not in _TRUSTED_SITES


def new_form(secret: str) -> tuple[str, str]:
    """Return the request id of a new form, and the token that only a page of this session can have for it."""
    request_id = secrets.token_hex(16)
    return request_id, form_token(secret, request_id)


def form_token(secret: str, request_id: str) -> str:
    """Return the token of a form. It differs from form to form, so that compression gives nothing away."""
    return hmac.new(secret.encode(), f"form {request_id}".encode(), hashlib.sha256).hexdigest()


def check_form(secret: str | None, request_id: str, token: str) -> None:
    """Raise the refusal unless a form was made for this session."""
    if secret is None:
        raise NotSignedIn("You are not signed in, or no longer.", hint="`oarlock login` prints a link that signs in.")
    if not hmac.compare_digest(form_token(secret, request_id), token):
        raise Forbidden("This form was not made for your session.", hint="Open the page again, then send it.")


async def sign_in(core: ServerInterface, link: str, *, agent: str) -> str:
    """Turn a link into a session; return its secret. `NotSignedIn` if the link was used, or is too old."""
    secret, now = new_token(), int(core.clock.now())

    def step(tx: Tx) -> BrowserSession | None:
        return browser_sessions.redeem(
            tx,
            token_hash(link),
            token_hash(secret),
            agent=_printable(agent),
            now=now,
            until=now + SESSION_SECONDS,
        )

    session = await core.write(step)
    if session is None:
        raise NotSignedIn(
            "That link was used already, or is older than a minute.", hint="`oarlock login` prints another."
        )
    log.info("signed in", extra={"user": session.user, "how": "link"})
    return secret


async def begin_session(core: ServerInterface, account: UserAccount, *, agent: str, how: str) -> str:
    """Begin a session for somebody who was signed in otherwise; return its secret."""
    secret, now = new_token(), int(core.clock.now())
    session = BrowserSession(
        token_hash(secret), account.name, account.uid, SESSION, now, now + SESSION_SECONDS, _printable(agent)
    )
    await core.write(lambda tx: browser_sessions.add(tx, session))
    log.info("signed in", extra={"user": account.name, "how": how})
    return secret


async def sign_out(core: ServerInterface, user: str, secret: str) -> None:
    """End the session of a browser."""
    await core.write(lambda tx: browser_sessions.remove(tx, user=user, session_hash=token_hash(secret)))


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text[:_LONGEST_AGENT])
