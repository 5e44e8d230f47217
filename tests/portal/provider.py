"""A made-up OpenID Connect provider on this machine: signs in whoever comes, and can be told to lie."""

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

KEY = RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})
CLIENT = "oarlock-portal"


@dataclass
class Provider:
    """What it says of whoever signs in. `lies` replace claims; `header`, `key`, `secret` say how a token is signed."""

    issuer: str
    account: str = "nobody"
    lies: dict[str, Any] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=lambda: {"alg": "RS256", "kid": "one"})
    key: Any = field(default_factory=lambda: KEY)
    secret: bytes | None = None
    published: list[Any] = field(default_factory=lambda: [KEY])
    begun: dict[str, dict[str, str]] = field(default_factory=dict)
    now: float = 0.0

    def visit(self, address: str) -> str:
        """Sign somebody in as a browser would; return the path and query to which it is sent back."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        code = f"code-{len(self.begun)}"
        self.begun[code] = asked
        back = urlsplit(asked["redirect_uri"]).path
        return f"{back}?{urlencode({'code': code, 'state': asked['state']})}"

    def token(self, form: dict[str, str]) -> dict[str, Any]:
        """Answer the portal, which shows the code and the verifier."""
        asked = self.begun.pop(form["code"])
        challenge = hashlib.sha256(form["code_verifier"].encode()).digest()
        if _encoded(challenge) != asked["code_challenge"]:
            return {"error": "invalid_grant"}
        now = int(self.now or time.time())
        claims = {
            "iss": self.issuer, "aud": CLIENT, "sub": "17", "iat": now, "exp": now + 300, "nonce": asked["nonce"],
            "preferred_username": self.account,
        } | self.lies  # fmt: skip
        claims = {name: value for name, value in claims.items() if value is not None}
        if self.secret is None:
            text = jwt.encode(self.header, claims, self.key, algorithms=["RS256"])
        else:
            text = _signed_with(self.secret, self.header, claims)
        return {"access_token": "a", "token_type": "Bearer", "id_token": text}

    def answer(self, path: str, form: dict[str, str]) -> dict[str, Any]:
        if path == "/token":
            return self.token(form)
        if path == "/keys":
            return dict(KeySet(self.published).as_dict(private=False)) if self.published else {"keys": []}
        return {
            "issuer": self.issuer, "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token", "jwks_uri": f"{self.issuer}/keys",
        }  # fmt: skip


@contextmanager
def provider() -> Iterator[Provider]:
    made: list[Provider] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["content-length"])).decode()
            self._answer({name: values[0] for name, values in parse_qs(text).items()})

        def _answer(self, form: dict[str, str]) -> None:
            content = json.dumps(made[0].answer(self.path, form)).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.append(Provider(f"http://127.0.0.1:{server.server_port}"))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield made[0]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _signed_with(secret: bytes, header: dict[str, Any], claims: dict[str, Any]) -> str:
    """Sign a token with something that anybody knows: by HMAC, or not at all."""
    head = ".".join(_encoded(json.dumps(part).encode()) for part in (header, claims))
    if header["alg"] == "none":
        return f"{head}."
    return f"{head}.{_encoded(hmac.digest(secret, head.encode(), 'sha256'))}"


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
