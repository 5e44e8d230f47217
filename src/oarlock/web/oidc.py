"""OpenID Connect: a provider signs people in by the code flow, with PKCE, state and nonce; a claim names the account.

Nothing is kept between the two visits of a browser: state, nonce and verifier are made of its cookie and of a key that
only this process knows. Tokens must be signed by an asymmetric key that the provider publishes.
"""

import asyncio
import base64
import hashlib
import hmac
import http.client
import json
import logging
import secrets
import ssl
import time
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from oarlock.config import Config
from oarlock.model.errors import Forbidden, NotSignedIn, OarlockError, Unavailable

log = logging.getLogger(__name__)

BEGUN_SECONDS = 600
"""So long somebody may take to sign in at the provider."""

BACK = "/sign-in/oidc/back"
"""Where the provider sends the browser back to; the provider must know this address of the portal."""

_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]
_KEPT_SECONDS = 3600.0
_SECONDS = 10.0
_MOST_BYTES = 1 << 20
_LEEWAY = 60
_OK = 200


class ProviderAway(Unavailable):
    """The provider does not answer, or not as it should."""

    def __init__(self, why: str) -> None:
        super().__init__("The site's sign-in service cannot be used now.", hint="`oarlock login` signs in without it.")
        self.why = why


class Provider(NamedTuple):
    """What the provider says about itself, and its keys."""

    authorization: str
    token: str
    keys: str
    known_until: float


class OidcClient:
    """Sends browsers to the provider, and learns from it who came back."""

    def __init__(self, config: Config, back: str, clock: Callable[[], float]) -> None:
        self._config, self._back, self._clock = config, back, clock
        self._key = secrets.token_bytes(32)
        self._provider: Provider | None = None
        self._keys: Any = None

    async def begin(self) -> tuple[str, str]:
        """Return the address at the provider to go to, and the value of the cookie that belongs to it."""
        from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
        from authlib.oauth2.rfc7636 import create_s256_code_challenge

        provider = await self._known_provider()
        begun = f"{int(self._clock())}.{secrets.token_urlsafe(24)}"
        address: str = prepare_grant_uri(
            provider.authorization,
            client_id=self._config.portal_oidc_client,
            response_type="code",
            redirect_uri=self._back,
            scope=list(self._config.portal_oidc_scopes),
            state=self._derived("state", begun),
            nonce=self._derived("nonce", begun),
            code_challenge=create_s256_code_challenge(self._derived("verifier", begun)),
            code_challenge_method="S256",
        )
        return address, begun

    async def finish(self, query: Mapping[str, str], begun: str) -> str:
        """Return the name of the account that the provider signed in; refuse what does not fit together."""
        self._check_begun(query, begun)
        if "error" in query:
            raise NotSignedIn("The sign-in service signed nobody in.", hint="Try again.")
        provider = await self._known_provider()
        tokens = await self._exchange(provider, query.get("code", "")[:4096], self._derived("verifier", begun))
        claims = await self._verified(provider, tokens, self._derived("nonce", begun))
        name = claims.get(self._config.portal_oidc_claim)
        if not isinstance(name, str) or not name:
            log.warning("a token without the claim", extra={"claim": self._config.portal_oidc_claim})
            raise Forbidden(
                "The sign-in service did not say which account is yours.",
                hint="PORTAL_OIDC_CLAIM in the server's settings names the claim that does.",
            )
        return name

    def _derived(self, purpose: str, begun: str) -> str:
        made = hmac.new(self._key, f"{purpose} {begun}".encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(made).rstrip(b"=").decode()

    def _check_begun(self, query: Mapping[str, str], begun: str) -> None:
        at, _, _ = begun.partition(".")
        is_fresh = at.isascii() and at.isdigit() and 0 <= self._clock() - int(at[:18]) <= BEGUN_SECONDS
        state = query.get("state", "").encode("utf-8", "replace")
        if not is_fresh or not hmac.compare_digest(state, self._derived("state", begun).encode()):
            raise NotSignedIn("This sign-in was not begun in your browser, or too long ago.", hint="Begin it again.")

    async def _known_provider(self) -> Provider:
        if self._provider is not None and time.monotonic() < self._provider.known_until:
            return self._provider
        issuer = self._config.portal_oidc_issuer
        answered = await _fetch(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if answered.get("issuer") != issuer:
            raise _away(f"it calls itself {str(answered.get('issuer'))[:200]!a}")
        addresses = [answered.get(name) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")]
        if not all(isinstance(address, str) and _is_safe(address) for address in addresses):
            raise _away("one of its addresses is missing or not https")
        authorization, token, keys = map(str, addresses)
        self._provider = Provider(authorization, token, keys, time.monotonic() + _KEPT_SECONDS)
        self._keys = None
        return self._provider

    async def _exchange(self, provider: Provider, code: str, verifier: str) -> Mapping[str, Any]:
        """Exchange a code for tokens."""
        fields = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": self._back, "code_verifier": verifier,
            "client_id": self._config.portal_oidc_client,
        }  # fmt: skip
        headers = {"content-type": "application/x-www-form-urlencoded"}
        if self._config.portal_oidc_secret is not None:
            pair = f"{quote(self._config.portal_oidc_client)}:{quote(self._config.portal_oidc_secret.value, safe='')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return await _fetch(provider.token, body=urlencode(fields).encode(), headers=headers)

    async def _verified(self, provider: Provider, tokens: Mapping[str, Any], nonce: str) -> Mapping[str, Any]:
        """Return the claims of the identity token; refuse one that is not signed by the provider for us, now."""
        from authlib.oidc.core import CodeIDToken
        from joserfc.errors import JoseError

        text = tokens.get("id_token")
        if not isinstance(text, str):
            raise _away("its answer has no identity token")
        try:
            header, claims = await self._decoded(provider, text)
            token = CodeIDToken(
                claims, header,
                {
                    "iss": {"essential": True, "value": self._config.portal_oidc_issuer},
                    "aud": {"essential": True, "value": self._config.portal_oidc_client},
                },
                {
                    "nonce": nonce, "client_id": self._config.portal_oidc_client,
                    "access_token": tokens.get("access_token"),
                },
            )  # fmt: skip
            token.validate(now=int(self._clock()), leeway=_LEEWAY)
        except (JoseError, ValueError, TypeError, KeyError) as problem:
            log.warning("a token of the sign-in service is refused", extra={"why": f"{type(problem).__name__}"})
            raise NotSignedIn("What the sign-in service sent cannot be believed.", hint="Begin again.") from None
        return dict(token)

    async def _decoded(self, provider: Provider, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Check the signature. A key that is not known may be new: the provider's keys are read once more."""
        from joserfc import jwt
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        for is_last in (self._keys is None, True):
            if self._keys is None:
                self._keys = KeySet.import_key_set(await _fetch(provider.keys))  # type: ignore[arg-type]
            try:
                decoded = jwt.decode(text, self._keys, algorithms=_ALGORITHMS)
                return dict(decoded.header), dict(decoded.claims)
            except (JoseError, ValueError):
                self._keys = None
                if is_last:
                    raise
        raise ValueError(text)


def _away(why: str) -> OarlockError:
    log.warning("the sign-in service cannot be used", extra={"why": why})
    return ProviderAway(why)


def _is_safe(address: str) -> bool:
    """Return whether what is sent to an address cannot be read on the way: TLS, or this machine."""
    parts = urlsplit(address)
    if parts.scheme == "https":
        return bool(parts.hostname)
    try:
        return parts.scheme == "http" and ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


async def _fetch(
    address: str, *, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return what stands at an address, or what is answered to a form; `ProviderAway` if that is no JSON object."""
    if not _is_safe(address):
        raise _away("its address is not https")
    try:
        status, content = await asyncio.to_thread(_ask, address, body, dict(headers or {}))
        answered = json.loads(content)
    except (OSError, http.client.HTTPException, ValueError) as problem:
        raise _away(f"{type(problem).__name__}: {problem}"[:200]) from None
    if status != _OK or not isinstance(answered, dict):
        raise _away(f"it answers {status}")
    return answered


def _ask(address: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
    parts = urlsplit(address)
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(parts.netloc, timeout=_SECONDS, context=context)
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=_SECONDS)
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET" if body is None else "POST", path, body, {"accept": "application/json"} | headers)
        reply = connection.getresponse()
        return reply.status, reply.read(_MOST_BYTES)
    finally:
        connection.close()
