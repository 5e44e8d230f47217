"""Signing in and out, and the page about oneself."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from oarlock.insight.mails import portal_address
from oarlock.model.errors import Forbidden, NotFound
from oarlock.web import sign_in
from oarlock.web.dispatch import Dispatcher
from oarlock.web.oidc import BACK, BEGUN_SECONDS, OidcClient
from oarlock.web.pages.parts.registry import action, page
from oarlock.web.pages.parts.view import Answer, Redirect, View

_LONGEST_LINK = 200


@dataclass(frozen=True, slots=True)
class SignInWays:
    """The ways to sign in besides the link of `oarlock login`. `provider`: the host of the OpenID Connect provider."""

    provider: str = ""
    password: bool = False


def ways_of(dispatcher: Dispatcher) -> SignInWays:
    """Return the ways to sign in that this site has."""
    issuer = dispatcher.core.config.portal_oidc_issuer
    return SignInWays(urlsplit(issuer).hostname or "" if issuer else "", dispatcher.passwords is not None)


@page("/sign-in")
async def show_sign_in(view: View) -> Answer:
    """Show the button of a link. Only pressing it signs in: a program that looks at links in mails does not."""
    if view.caller is not None:
        return Redirect("/")
    link = view.query.get("link", "")[:_LONGEST_LINK]
    return view.page("sign_in.html", token=link, refusal=None, ways=ways_of(view.dispatcher))


@action("/sign-in", signs_in=True)
async def press_button(view: View) -> Answer:
    """Turn the link into a session."""
    core = view.dispatcher.core
    secret = await sign_in.sign_in(core, view.field("link")[:_LONGEST_LINK], agent=view.agent)
    return Redirect("/", sign_in.set_cookie(core.config, secret))


@action("/sign-in/password", signs_in=True)
async def sign_in_by_password(view: View) -> Answer:
    """Sign in whoever knows the password of an account."""
    core, door = view.dispatcher.core, view.dispatcher.passwords
    if door is None:
        raise _no_such_way("passwords")
    _refuse_in_the_clear(view)
    user = view.field("user").strip()
    await door.open(user, view.field("password"), address=view.address)
    account = await view.dispatcher.account(user)
    secret = await sign_in.begin_session(core, account, agent=view.agent, how="password")
    return Redirect("/", sign_in.set_cookie(core.config, secret))


def _refuse_in_the_clear(view: View) -> None:
    """Refuse a password that could be read on its way: it comes over TLS, or from this machine."""
    if not (sign_in.is_encrypted(view.dispatcher.core.config) or view.address in {"", "127.0.0.1", "::1"}):
        raise Forbidden("Passwords are taken over TLS only.", hint="`oarlock login` signs in without one.")


@page("/sign-in/oidc")
async def go_to_provider(view: View) -> Answer:
    """Send the browser to the site's OpenID Connect provider."""
    address, begun = await _oidc(view).begin()
    config = view.dispatcher.core.config
    return Redirect(address, sign_in.oidc_cookie(config, begun, seconds=BEGUN_SECONDS))


@page(BACK)
async def come_back(view: View) -> Answer:
    """Begin a session for the account that the provider names."""
    core = view.dispatcher.core
    begun = view.cookies.get(sign_in.oidc_cookie_name(core.config), "")
    account = await view.dispatcher.account(await _oidc(view).finish(view.query, begun))
    secret = await sign_in.begin_session(core, account, agent=view.agent, how="oidc")
    return Redirect("/", sign_in.set_cookie(core.config, secret))


def _oidc(view: View) -> OidcClient:
    core, oidc = view.dispatcher.core, view.dispatcher.oidc
    if oidc is None:
        if not core.config.portal_oidc_issuer:
            raise _no_such_way("an OpenID Connect provider")
        oidc = view.dispatcher.oidc = OidcClient(core.config, portal_address(core.config) + BACK, core.clock.now)
    return oidc


def _no_such_way(what: str) -> NotFound:
    return NotFound(f"This site does not sign in by {what}.", hint="`oarlock login` prints a link that does.")


@action("/sign-out")
async def leave(view: View) -> Answer:
    """End this browser's session."""
    core = view.dispatcher.core
    if view.secret is not None:
        await sign_in.sign_out(core, view.user, view.secret)
    return Redirect("/sign-in", sign_in.set_cookie(core.config, ""))


@page("/me")
async def show_me(view: View) -> Answer:
    """Show one's sessions, tokens and choices of mails."""
    sessions = await view.ask("browser.list")
    tokens = await view.ask("tokens.list")
    shares = await view.ask("shares.list")
    mail = await view.ask("mail.choices")
    return view.page(
        "me.html", sessions=sessions.sessions, tokens=tokens.tokens, shares=shares.shares, mail=mail
    )  # fmt: skip


@action("/me/revoke")
async def revoke(view: View) -> Answer:
    """Sign another browser out, or make a token or a link to a job worthless."""
    if view.field("session"):
        await view.change("browser.revoke", id=view.field("session"))
    elif view.field("share"):
        await view.change("shares.revoke", id=view.field("share"))
    else:
        await view.change("tokens.revoke", name=view.field("token"))
    return Redirect("/me")
