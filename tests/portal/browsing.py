"""Browsing without a browser: forms, cookies and pages as one would send them."""

import re
from dataclasses import dataclass, field
from html import unescape
from http.client import HTTPConnection
from urllib.parse import urlencode

from tests.web.nodeless_server import Running


@dataclass
class Seen:
    status: int
    text: str
    headers: dict[str, str]


@dataclass
class Visitor:
    """Somebody with a browser; cookies are kept as a browser would."""

    port: int
    cookies: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, **headers: str) -> Seen:
        return self._send("GET", path, None, headers)

    def post(self, path: str, fields: dict[str, str], **headers: str) -> Seen:
        headers = {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/x-www-form-urlencoded"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        return self._send("POST", path, urlencode(fields, doseq=True), headers)

    def _send(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> Seen:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, sent)
            reply = connection.getresponse()
            text = reply.read().decode(errors="replace")
        finally:
            connection.close()
        self._keep(reply.getheader("set-cookie", ""))
        return Seen(reply.status, text, {name.lower(): value for name, value in reply.getheaders()})

    def _keep(self, cookie: str) -> None:
        if match := re.match(r"([^=]+)=([^;]*);.*Max-Age=(\d+)", cookie):
            name, value, age = match.groups()
            self.cookies[name] = value
            if age == "0":
                del self.cookies[name]


def forms(page: str) -> list[tuple[str, dict[str, str]]]:
    """Return the forms of a page that change something: where they are sent, and their fields."""
    found = re.findall(r'<form[^>]*method="post"[^>]*action="([^"]*)"[^>]*>(.*?)</form>', page, re.DOTALL)
    return [
        (
            unescape(action),
            {unescape(name): unescape(value) for name, value in
             re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', inside)},
        )
        for action, inside in found
    ]  # fmt: skip


def link_of(api: Running, user: str) -> str:
    """Let a user run `oarlock login`; return the path of the link."""
    link = api.client_of(user).post("/browser/link", {}).body["link"]
    return str(link.partition("://")[2].partition("/")[2])


def signed_in(api: Running, user: str) -> Visitor:
    """Sign a user in, by link and button."""
    visitor = Visitor(api.port)
    page = visitor.get(f"/{link_of(api, user)}")
    [(action, fields)] = forms(page.text)
    assert visitor.post(action, fields).status == 303
    return visitor
