"""Signing in by others: a proxy's header on its own socket, an OpenID Connect provider, a password that PAM checks."""

import http.client
import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.model.errors import ConfigRefused, TooManyTries
from oarlock.web.oidc import BEGUN_SECONDS
from oarlock.web.passwords import TRIES, TryCounter
from tests.portal.browsing import Seen, Visitor, forms
from tests.portal.provider import CLIENT, KEY, Provider, provider
from tests.store.cluster import add_job
from tests.web.nodeless_server import Running, alone, connected_as

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

USER, PROXY = "nobody", "www-data"


@pytest.fixture
def proxied(sqlite_path: Path) -> Iterator[Running]:
    with alone(
        sqlite_path, job_min_uid=1, portal_user_header="X-Remote-User", portal_proxy_users=(PROXY,)
    ) as api:  # fmt: skip
        api.core.database.write(lambda tx: add_job(tx, user=USER, uid=65534))
        yield api


def at_proxy(api: Running, path: str, *, by: str = PROXY, method: str = "GET", body: str = "", **headers: str) -> Seen:
    """Ask at the proxy's socket, as an account of this machine."""
    sock = connected_as(pwd.getpwnam(by).pw_uid, api.socket.with_name("portal.sock"))
    connection = http.client.HTTPConnection("localhost", timeout=20)
    connection.sock = sock
    try:
        connection.putrequest(method, path)
        for name, value in headers.items():
            for one in value.split("|"):
                connection.putheader(name.replace("_", "-"), one)
        if body:
            connection.putheader("content-length", str(len(body)))
        connection.endheaders(body.encode() or None)
        reply = connection.getresponse()
        text = reply.read().decode()
        return Seen(reply.status, text, {name.lower(): value for name, value in reply.getheaders()})
    finally:
        connection.close()


def cookie_of(seen: Seen) -> str:
    return seen.headers["set-cookie"].partition(";")[0]


def test_the_proxy_names_who_is_signed_in_and_a_session_begins(proxied):
    entered = at_proxy(proxied, "/me?days=7", X_Remote_User=USER)
    assert (entered.status, entered.headers["location"]) == (303, "/me?days=7")
    page = at_proxy(proxied, "/me", X_Remote_User=USER, Cookie=cookie_of(entered))
    assert (page.status, "<h1>nobody</h1>" in page.text) == (200, True)
    assert len(proxied.client_of(USER).get("/browser/sessions").body["sessions"]) == 1


def test_the_header_is_believed_on_the_proxys_socket_alone(proxied):
    assert Visitor(proxied.port).get("/me", X_Remote_User=USER).status == 401
    at_socket = proxied.client_of("daemon").get("/browser/sessions", X_Remote_User=USER)
    assert at_socket.body == {"sessions": []}


def test_only_the_proxys_account_may_connect_at_its_socket(proxied):
    refused = at_proxy(proxied, "/me", by=USER, X_Remote_User="root")
    assert (refused.status, "This socket is the proxy's." in refused.text) == (403, True)


def test_a_session_of_one_user_is_worth_nothing_for_another(proxied):
    cookie = cookie_of(at_proxy(proxied, "/me", X_Remote_User=USER))
    other = at_proxy(proxied, "/me", X_Remote_User="daemon", Cookie=cookie)
    assert (other.status, cookie_of(other) != cookie) == (303, True)
    assert at_proxy(proxied, "/api/v1/jobs", X_Remote_User="daemon", Cookie=cookie).status == 401
    assert at_proxy(proxied, "/api/v1/jobs", Cookie=cookie).status == 401
    assert at_proxy(proxied, "/api/v1/jobs", X_Remote_User=USER, Cookie=cookie).status == 200


def test_a_header_that_names_nobody_signs_nobody_in(proxied):
    for names in ("", "nobody|root", "root|nobody", "nobody,root", "no such user", "x" * 300):
        seen = at_proxy(proxied, "/me", X_Remote_User=names)
        assert (names, seen.status in {401, 403}, "set-cookie" in seen.headers) == (names, True, False)


def test_the_proxys_own_account_is_not_signed_in_by_its_socket(proxied):
    assert at_proxy(proxied, "/api/v1/tokens").status == 401
    assert at_proxy(proxied, "/me").status == 401


def test_the_way_back_is_never_to_another_host(proxied):
    for path in ("//evil.example/x", "/\\evil.example/x", "//evil.example/%2e%2e"):
        location = at_proxy(proxied, path, X_Remote_User=USER).headers.get("location", "/")
        assert location.startswith("/")
        assert not location.startswith(("//", "/\\"))


def test_a_form_behind_the_proxy_needs_its_token_too(proxied):
    cookie = cookie_of(at_proxy(proxied, "/me", X_Remote_User=USER))
    asked = {"X_Remote_User": USER, "Cookie": cookie, "Content_Type": "application/x-www-form-urlencoded"}
    assert at_proxy(proxied, "/sign-out", method="POST", body="x=1", **asked).status == 403
    assert at_proxy(proxied, "/me", X_Remote_User=USER, Cookie=cookie).status == 200


def test_an_unknown_account_of_a_proxy_is_refused_at_the_start(sqlite_path):
    with (
        pytest.raises(ConfigRefused, match="PORTAL_PROXY_USERS"),
        alone(sqlite_path, portal_user_header="X-User", portal_proxy_users=("no-such-proxy",)),
    ):
        pass


@pytest.fixture
def signed_by() -> Iterator[Provider]:
    with provider() as running:
        yield running


@pytest.fixture
def oidc(sqlite_path: Path, signed_by: Provider) -> Iterator[Running]:
    with alone(
        sqlite_path, job_min_uid=1, portal_oidc_issuer=signed_by.issuer, portal_oidc_client=CLIENT
    ) as api:  # fmt: skip
        signed_by.now = api.core.clock.at
        yield api


def come_back(api: Running, signed_by: Provider, visitor: Visitor) -> Seen:
    gone = visitor.get("/sign-in/oidc")
    assert gone.status == 303
    return visitor.get(signed_by.visit(gone.headers["location"]))


def test_a_provider_signs_in_the_account_of_its_claim(oidc, signed_by):
    visitor = Visitor(oidc.port)
    assert "Sign in at 127.0.0.1" in visitor.get("/me").text
    assert come_back(oidc, signed_by, visitor).status == 303
    assert "<h1>nobody</h1>" in visitor.get("/me").text


def test_the_provider_is_asked_with_state_nonce_and_a_challenge(oidc, signed_by):
    visitor = Visitor(oidc.port)
    signed_by.visit(visitor.get("/sign-in/oidc").headers["location"])
    [asked] = signed_by.begun.values()
    assert {name: asked[name] for name in ("response_type", "client_id", "scope", "code_challenge_method")} == {
        "response_type": "code", "client_id": CLIENT, "scope": "openid profile", "code_challenge_method": "S256",
    }  # fmt: skip
    assert len({asked["state"], asked["nonce"], asked["code_challenge"], *visitor.cookies.values()}) == 4


LIES = (
    {"iss": "https://evil.example"}, {"aud": "another-portal"}, {"aud": None}, {"exp": 1}, {"exp": None},
    {"nonce": "another"}, {"nonce": None}, {"iat": None}, {"sub": None}, {"azp": "another"},
    {"aud": [CLIENT, "x"], "azp": "x"},
)  # fmt: skip


def test_a_token_that_is_not_for_this_sign_in_is_refused(oidc, signed_by):
    visitor = Visitor(oidc.port)
    for lies in LIES:
        signed_by.lies = lies
        assert (lies, come_back(oidc, signed_by, visitor).status, visitor.get("/me").status) == (lies, 401, 401)
    signed_by.lies = {}
    assert come_back(oidc, signed_by, visitor).status == 303


def test_a_token_signed_with_nothing_or_a_known_key_is_refused(oidc, signed_by):
    visitor = Visitor(oidc.port)
    for alg in ("none", "HS256"):
        for secret in (b"", KEY.as_pem(private=False)):
            signed_by.header, signed_by.secret = {"alg": alg, "kid": "one"}, secret
            assert come_back(oidc, signed_by, visitor).status == 401
            assert visitor.get("/me").status == 401


def test_a_provider_without_keys_signs_nobody_in(oidc, signed_by):
    signed_by.published = []
    visitor = Visitor(oidc.port)
    assert come_back(oidc, signed_by, visitor).status in {401, 503}
    assert visitor.get("/me").status == 401


def test_who_did_not_begin_the_sign_in_does_not_end_it(oidc, signed_by):
    visitor, victim = Visitor(oidc.port), Visitor(oidc.port)
    back = signed_by.visit(visitor.get("/sign-in/oidc").headers["location"])
    assert victim.get(back).status == 401
    victim.get("/sign-in/oidc")
    assert victim.get(back).status == 401
    assert visitor.get(back).status == 303
    assert visitor.get(back).status in {401, 503}  # the code was used


def test_a_sign_in_at_the_provider_must_be_quick(oidc, signed_by):
    visitor = Visitor(oidc.port)
    back = signed_by.visit(visitor.get("/sign-in/oidc").headers["location"])
    oidc.core.clock.at += BEGUN_SECONDS + 1
    assert visitor.get(back).status == 401


def test_a_claim_that_is_no_account_is_refused(oidc, signed_by):
    for name in (None, ["root"], "no such user", ""):
        signed_by.lies = {"preferred_username": name}
        assert come_back(oidc, signed_by, Visitor(oidc.port)).status == 403


def test_a_provider_that_is_away_is_named_in_a_sentence(sqlite_path):
    with alone(sqlite_path, portal_oidc_issuer="http://127.0.0.1:9", portal_oidc_client="x") as api:
        seen = Visitor(api.port).get("/sign-in/oidc")
        assert (seen.status, "cannot be used now" in seen.text) == (503, True)


def test_a_provider_without_tls_is_not_asked(sqlite_path):
    with alone(sqlite_path, portal_oidc_issuer="http://192.0.2.7", portal_oidc_client="x") as api:
        assert Visitor(api.port).get("/sign-in/oidc").status == 503


def test_keys_that_the_provider_changed_are_read_again(oidc, signed_by):
    come_back(oidc, signed_by, Visitor(oidc.port))
    fresh = type(KEY).generate_key(2048, {"kid": "two", "use": "sig", "alg": "RS256"})
    signed_by.key, signed_by.published, signed_by.header = fresh, [fresh], {"alg": "RS256", "kid": "two"}
    assert come_back(oidc, signed_by, Visitor(oidc.port)).status == 303


def test_five_tries_a_minute_are_granted_to_a_name():
    now = [100.0]
    counter = TryCounter(lambda: now[0])
    for _ in range(TRIES):
        counter.count("user ada")
    counter.count("user bob")
    with pytest.raises(TooManyTries):
        counter.count("user ada")
    now[0] += 60
    counter.count("user ada")


def test_ways_that_a_site_does_not_have_are_not_there(sqlite_path):
    with alone(sqlite_path) as api:
        visitor = Visitor(api.port)
        assert visitor.get("/sign-in/oidc").status == 404
        assert visitor.get("/sign-in/oidc/back").status == 404
        assert visitor.post("/sign-in/password", {"user": "root", "password": "x"}).status == 404
        assert 'type="password"' not in visitor.get("/sign-in").text
        assert not api.socket.with_name("portal.sock").exists()


PAM_FILE = """
auth required pam_exec.so quiet expose_authtok {script}
account required pam_permit.so
"""
PAM_SCRIPT = """#!/bin/sh
[ "$(cat | tr -d '\\000')" = "right $PAM_USER" ]
"""


@pytest.fixture
def pam_service(tmp_path: Path) -> Iterator[str]:
    """A service of PAM at which the password of ada is `right ada`."""
    if not any(Path("/lib").glob("*/security/pam_exec.so")):
        pytest.skip("PAM's modules are not here")
    script = tmp_path / "check"
    script.write_text(PAM_SCRIPT)
    script.chmod(0o755)
    service = Path(f"/etc/pam.d/oarlock-test-{os.getpid()}")
    service.write_text(PAM_FILE.format(script=script))
    try:
        yield service.name
    finally:
        service.unlink()


@pytest.fixture
def pam(sqlite_path: Path, pam_service: str) -> Iterator[Running]:
    with alone(sqlite_path, job_min_uid=1, portal_pam_service=pam_service) as api:
        yield api


def test_a_password_that_pam_accepts_signs_in(pam):
    visitor = Visitor(pam.port)
    [(action, _)] = forms(visitor.get("/sign-in").text)
    assert visitor.post(action, {"user": USER, "password": "right nobody"}).status == 303
    assert "<h1>nobody</h1>" in visitor.get("/me").text


def test_wrong_names_and_wrong_passwords_are_refused_in_the_same_words(pam):
    visitor = Visitor(pam.port)
    wrong = visitor.post("/sign-in/password", {"user": USER, "password": "wrong"})
    unknown = visitor.post("/sign-in/password", {"user": "no-such-user", "password": "wrong"})
    assert (wrong.status, unknown.status, visitor.cookies) == (401, 401, {})
    assert wrong.text == unknown.text
    assert "That name and password do not fit." in wrong.text


def test_after_five_tries_even_the_right_password_must_wait(pam):
    visitor = Visitor(pam.port)
    for _ in range(TRIES):
        visitor.post("/sign-in/password", {"user": USER, "password": ""})
        visitor.post("/sign-in/password", {"user": USER, "password": "wrong"})
    late = visitor.post("/sign-in/password", {"user": USER, "password": "right nobody"})
    assert (late.status, "Too many tries" in late.text) == (429, True)


def test_another_site_sends_no_password(pam):
    fields = {"user": USER, "password": "right nobody"}
    refused = Visitor(pam.port).post("/sign-in/password", fields, Sec_Fetch_Site="cross-site")
    assert (refused.status, "set-cookie" in refused.headers) == (403, False)


def test_names_and_passwords_that_cannot_be_are_not_tried(pam):
    for user, password in (("", "x"), ("x", ""), ("x" * 300, "x"), (USER, "x" * 300), ("\0", "x")):
        assert Visitor(pam.port).post("/sign-in/password", {"user": user, "password": password}).status == 400


def test_a_service_that_pam_does_not_know_signs_nobody_in(sqlite_path):
    with alone(sqlite_path, portal_pam_service="oarlock-no-such-service") as api:
        visitor = Visitor(api.port)
        assert visitor.post("/sign-in/password", {"user": USER, "password": "x"}).status in {401, 503}
        assert visitor.cookies == {}
