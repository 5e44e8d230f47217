"""Who may send: hosts by their addresses, or by their CURVE keys, and for which node each of them speaks."""

import ipaddress
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from oarlock.measure.colmet.messages import UnreadableMessage, check_host
from oarlock.model.errors import ConfigRefused

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

LOOPBACK = ("127.0.0.0/8", "::1/128")
KEY_CHARACTERS = 40
_CLAIM_SECONDS = 600.0
_MOST_CLAIMS = 100_000


class CurveKeys(NamedTuple):
    """Our secret key, and the public keys of those who may send, with the node of each; all as Z85."""

    secret: str
    senders: Mapping[str, str]


class Senders:
    """Decides who may send, and for which nodes. Without addresses and keys only this machine may."""

    def __init__(
        self,
        networks: Iterable[Network] = (),
        nodes: Mapping[Network, str] | None = None,
        curve: CurveKeys | None = None,
    ) -> None:
        self.curve = curve
        self._nodes = dict(nodes or {})
        self._networks = [*networks, *self._nodes]
        if not self._networks:
            self._networks = [ipaddress.ip_network(network) for network in LOOPBACK]
        self._names = {*self._nodes.values(), *(curve.senders.values() if curve else ())}
        self._claims: dict[str, tuple[str, float]] = {}

    def admit_address(self, text: str) -> bool:
        """Return whether a host at this address may send."""
        address = _address(text)
        return address is not None and any(address in network for network in self._networks)

    def admit_key(self, key: str) -> bool:
        """Return whether the owner of this public key may send."""
        return self.curve is not None and key in self.curve.senders

    def may_speak_for(self, sender: str, host: str, now: float) -> bool:
        """Return whether a sender, an address or a key, may tell about a host.

        One that was named with its node speaks for that alone. Others have a host for as long as they are the ones that
        send for it: a second sender of the same name is refused until the first was silent for ten minutes.
        """
        names = self._names_of(sender)
        if names:
            return host in names
        if host in self._names:
            return False
        owner, last = self._claims.get(host, (sender, now))
        if owner != sender and now - last < _CLAIM_SECONDS:
            return False
        if len(self._claims) >= _MOST_CLAIMS and host not in self._claims:
            self._claims = {name: claim for name, claim in self._claims.items() if now - claim[1] < _CLAIM_SECONDS}
            if len(self._claims) >= _MOST_CLAIMS:
                return False
        self._claims[host] = sender, now
        return True

    def label(self, sender: str) -> str:
        """Return what a sender is counted under: the node of a key, else what it is."""
        return self.curve.senders.get(sender, sender) if self.curve else sender

    def _names_of(self, sender: str) -> set[str]:
        if self.curve:
            return {self.curve.senders[sender]} if sender in self.curve.senders else set()
        address = _address(sender)
        return {name for network, name in self._nodes.items() if address is not None and address in network}


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, ipaddress.IPv6Address) else address


def parse_network(text: str) -> Network:
    """Parse an address or a network (`10.0.0.0/24`)."""
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise ConfigRefused(
            f"`{text}` is neither an address nor a network.", hint="Write 10.0.0.17 or 10.0.0.0/24."
        ) from None


def read_senders(allowed: Iterable[str] = (), file: Path | None = None) -> Senders:
    """Read who may send: addresses and networks, and a file in TOML with those of single nodes, or with keys."""
    networks = [parse_network(text) for text in allowed]
    if file is None:
        return Senders(networks)
    table = _read(file)
    secret, named = table.get("secret"), table.get("senders", {})
    if not isinstance(named, dict) or table.keys() - {"secret", "senders"}:
        raise _unusable(file, "it has other tables than `senders`")
    pairs = [(text, _node(file, name)) for name, texts in named.items() for text in _texts(file, name, texts)]
    if secret is None:
        return Senders(networks, {parse_network(text): node for text, node in pairs})
    if networks:
        raise ConfigRefused(
            f"{file} has a key, and addresses were given as well.", hint="Where keys are wanted, they alone count."
        )
    for key in (secret, *(text for text, _ in pairs)):
        if not isinstance(key, str) or len(key) != KEY_CHARACTERS:
            raise _unusable(file, f"a key has {KEY_CHARACTERS} characters (Z85)")
    return Senders(curve=CurveKeys(secret, dict(pairs)))


def _read(file: Path) -> dict[str, Any]:
    """Read a file that may hold a secret key: it must be nobody else's to read then."""
    try:
        table = tomllib.loads(file.read_text())
    except OSError as error:
        raise ConfigRefused(f"The senders in {file} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigRefused(f"The senders in {file} are not TOML: {error}.") from error
    if "secret" in table and file.stat().st_mode & 0o077:
        raise ConfigRefused(f"{file} holds a secret key, and others may read it.", hint=f"Run: chmod 600 {file}")
    return table


def _node(file: Path, name: str) -> str:
    try:
        return check_host(name)
    except UnreadableMessage as error:
        raise _unusable(file, str(error)) from None


def _texts(file: Path, name: str, texts: Any) -> list[str]:
    listed = [texts] if isinstance(texts, str) else texts
    if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
        raise _unusable(file, f"`{name}` is neither a text nor a list of texts")
    return listed


def _unusable(file: Path, why: str) -> ConfigRefused:
    return ConfigRefused(
        f"{file} does not say who may send: {why}.",
        hint='It holds [senders] with lines as n17 = "10.0.0.17", or secret = "…" and the public keys of nodes.',
    )
