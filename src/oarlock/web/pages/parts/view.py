"""What a page receives: who looks, what the address says, and how to ask the server."""

from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from oarlock.model.errors import BadRequest, Forbidden, NotFound
from oarlock.web import decode
from oarlock.web.dispatch import Dispatcher
from oarlock.web.identity import Caller
from oarlock.web.registry import VERBS


@dataclass(frozen=True, slots=True)
class Rendered:
    """An answer that is a page: a template and what it shows."""

    template: str
    values: Mapping[str, Any]
    status: int = 200


@dataclass(frozen=True, slots=True)
class Redirect:
    """An answer that leads to another address of the portal. `cookie`: a header that sets one."""

    path: str
    cookie: str = ""


@dataclass(frozen=True, slots=True)
class Data:
    """An answer that is not a page: JSON for a script, CSV to take home."""

    content: bytes
    media_type: str = "application/json"
    file_name: str = ""


@dataclass(frozen=True, slots=True)
class Live:
    """An answer that goes on: parts of a page, each a template and what it shows, made again when something changed.

    Viewers with the same `key` and language share what is made: the key stands for all that the parts depend on.
    """

    key: Hashable
    parts: Callable[[], Awaitable[Mapping[str, Rendered]]]


Answer = Rendered | Redirect | Data | Live


@dataclass(frozen=True, slots=True)
class View:
    """One request of a browser. `parts` are the variable parts of its address, `secret` that of its session.

    `address` is where the browser is; empty where only a proxy knows.
    """

    dispatcher: Dispatcher
    caller: Caller | None
    path: str
    query: Mapping[str, str]
    parts: Mapping[str, str]
    secret: str | None = None
    form: Mapping[str, list[str]] = field(default_factory=dict)
    agent: str = ""
    address: str = ""
    cookies: Mapping[str, str] = field(default_factory=dict)

    @property
    def now(self) -> int:
        """The present instant by the server's clock, in epoch seconds."""
        return int(self.dispatcher.core.clock.now())

    @property
    def user(self) -> str:
        """The name of whoever looks; empty for somebody who is not signed in."""
        return "" if self.caller is None else self.caller.name

    @property
    def sight(self) -> Hashable:
        """Whose jobs are seen: a part of the key of what viewers share. None: everybody's."""
        return self.dispatcher.policy.sight(self.caller)

    def advises(self, owner: str, project: str) -> bool:
        """Return whether curves and findings of a job are worth asking for; the verbs decide whether they are shown."""
        caller = self.caller
        return caller is not None and (caller.staff or owner == caller.name or project in caller.leads)

    @property
    def may_change(self) -> bool:
        """Whether the cluster can be changed from here at all; where others run it, it is only shown."""
        return not self.dispatcher.policy.read_only

    def as_caller(self, caller: Caller) -> "View":
        """Return the same request as somebody else would make it: what a link shows is seen as by whoever made it."""
        return replace(self, caller=caller, secret=None, form={})

    async def ask(self, name: str, /, **fields: Any) -> Any:
        """Ask a verb; fields that are None or empty are left out. `OarlockError` if it refuses."""
        verb = VERBS[name]
        value = await self.dispatcher.ask(self.caller, verb, decode.fields(_given(fields), verb.request))
        return msgspec.json.decode(value, type=verb.response) if isinstance(value, bytes) else value

    async def ask_if_allowed(self, name: str, /, **fields: Any) -> Any:
        """Ask a verb for something that may be missing, or not for this caller: None then."""
        try:
            return await self.ask(name, **fields)
        except (NotFound, Forbidden):
            return None

    async def change(self, name: str, /, **fields: Any) -> Any:
        """Ask a verb for a change, under the request id of the form: sent twice, it is done once."""
        verb = VERBS[name]
        payload = decode.fields(_given(fields), verb.request)
        return await self.dispatcher.ask(self.caller, verb, payload, request_id=self.field("request_id"))

    def field(self, name: str, default: str = "") -> str:
        """Return a field of the form that was sent."""
        return self.form.get(name, [default])[0]

    def number(self, name: str, default: int, *, most: int) -> int:
        """Return a whole number of the address; `BadRequest` for anything else."""
        text = self.query.get(name, "")
        if not text:
            return default
        if not (text.isascii() and text.isdigit()) or int(text[:20]) > most:
            raise BadRequest(f"`{name}` must be a whole number of at most {most}.", hint="Correct the address.")
        return int(text)

    def page(self, template: str, *, status: int = 200, **values: Any) -> Rendered:
        """Return a page made of a template."""
        return Rendered(template, values, status)


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None and value != "" and value != []}
