"""Signing in and out, and the page about oneself."""

from oarlock.web import sign_in
from oarlock.web.pages.registry import action, page
from oarlock.web.pages.view import Answer, Redirect, View

_LONGEST_LINK = 200


@page("/sign-in")
async def show_sign_in(view: View) -> Answer:
    """Show the button of a link. Only pressing it signs in: a program that looks at links in mails does not."""
    if view.caller is not None:
        return Redirect("/")
    return view.page("sign_in.html", token=view.query.get("link", "")[:_LONGEST_LINK], refusal=None)


@action("/sign-in", signs_in=True)
async def press_button(view: View) -> Answer:
    """Turn the link into a session."""
    core = view.dispatcher.core
    secret = await sign_in.sign_in(core, view.field("link")[:_LONGEST_LINK], agent=view.agent)
    return Redirect("/", sign_in.set_cookie(core.config, secret))


@action("/sign-out")
async def leave(view: View) -> Answer:
    """End this browser's session."""
    core = view.dispatcher.core
    if view.secret is not None:
        await sign_in.sign_out(core, view.user, view.secret)
    return Redirect("/sign-in", sign_in.set_cookie(core.config, ""))


@page("/me")
async def show_me(view: View) -> Answer:
    """Show one's sessions and tokens."""
    sessions = await view.ask("browser.list")
    tokens = await view.ask("tokens.list")
    return view.page("me.html", sessions=sessions.sessions, tokens=tokens.tokens)


@action("/me/revoke")
async def revoke(view: View) -> Answer:
    """Sign another browser out, or make a token worthless."""
    if view.field("session"):
        await view.change("browser.revoke", id=view.field("session"))
    else:
        await view.change("tokens.revoke", name=view.field("token"))
    return Redirect("/me")
