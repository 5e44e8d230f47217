"""Pages about mails that nobody asks for: choosing among them, and the page that a link in a mail leads to."""

from oarlock.web.pages.parts.registry import action, page
from oarlock.web.pages.parts.view import Answer, Redirect, View
from oarlock.web.verbs.users.mails import check_unsubscribe, unsubscribe

_LONGEST = 300


@action("/me/mail")
async def choose(view: View) -> Answer:
    """Choose whether one wants a kind of mails."""
    await view.change("mail.choose", kind=view.field("kind"), wanted=view.field("wanted") == "yes")
    return Redirect("/me")


@page("/unsubscribe")
async def show_unsubscribe(view: View) -> Answer:
    """Show the button of a link. Only pressing it refuses mails: a program that looks at links in mails does not."""
    link = {name: view.query.get(name, "")[:_LONGEST] for name in ("user", "kind", "key")}
    says = await check_unsubscribe(view.dispatcher.core, **link)
    return view.page("unsubscribe.html", says=says, chosen=link, is_done=False)


@action("/unsubscribe", signs_in=True)
async def do_unsubscribe(view: View) -> Answer:
    """Refuse the mails of the link in the address; mail programs send this form by themselves (RFC 8058)."""
    link = {name: view.query.get(name, "")[:_LONGEST] for name in ("user", "kind", "key")}
    await unsubscribe(view.dispatcher.core, **link)
    return view.page("unsubscribe.html", says="", chosen=link, is_done=True)
