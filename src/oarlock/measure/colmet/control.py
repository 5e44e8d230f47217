"""Control messages of `configure_colmet.py`, and of colmet-rs' `configure.py`, change an agent while it runs.

They are maps of texts in MessagePack, and nobody is answered: what is refused stands in the agent's log. Colmet listens
to everybody on its network; an agent listens to this machine alone, or to those whose CURVE keys it knows.
"""

import ipaddress
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from oarlock.measure.colmet.maps import CPU, EVENTS, MEMORY, VERSIONS
from oarlock.measure.colmet.messages import UnreadableMessage
from oarlock.measure.colmet.pull import PullSocket, bind_address
from oarlock.measure.colmet.senders import read_senders
from oarlock.model.errors import ConfigRefused, OarlockError

log = logging.getLogger(__name__)

_MOST_BYTES = 64 * 1024
_QUEUED = 16
_PERFHW, _METRICS, _PERIOD = "perfhw_metrics", "metrics", "sample_period"
_USUAL = "-1"  # colmet-rs: the usual period, all jobs
_decoder = msgspec.msgpack.Decoder(dict[str, str])
_BACKENDS = {name: backend for backend, name in VERSIONS[max(VERSIONS)].values()}


class ColmetControl:
    """Receives changes in a thread; `change` is called with each."""

    def __init__(self, address: str, keys: Path | None, change: Callable[[Mapping[str, Any]], object]) -> None:
        senders = read_senders(file=keys)
        if senders.curve is None:
            check_loopback(address)
        self._change = change
        self._socket = PullSocket(address, senders, most_bytes=_MOST_BYTES, queued=_QUEUED)
        self.address = self._socket.address
        self._thread = threading.Thread(target=self._run, name="colmet-control", daemon=True)
        self._thread.start()
        log.info("control messages of Colmet are understood", extra={"address": self.address})

    def close(self) -> None:
        """Stop listening."""
        self._socket.stop()
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        for message in self._socket.messages():
            try:
                changes = parse_control(message.data)
                self._change(changes)
                log.info("a control message was applied", extra={"sender": message.sender, "changes": changes})
            except (UnreadableMessage, OarlockError, TimeoutError) as error:
                log.warning("a control message was refused", extra={"sender": message.sender, "why": str(error)})
            except Exception:  # the agent goes on, and hears the next message
                log.exception("a control message could not be handled")


def check_loopback(address: str) -> None:
    """Refuse an address beyond this machine: without keys everybody there could change the agent."""
    host = bind_address(address).removeprefix("tcp://").rpartition(":")[0].strip("[]")
    try:
        inside = ipaddress.ip_address(host).is_loopback
    except ValueError:
        inside = False
    if not inside:
        raise ConfigRefused(
            f"At {address} everybody on the network could change the agent.",
            hint="Listen at 127.0.0.1:5557, or name CURVE keys with --control-keys FILE.",
        )


def parse_control(data: bytes) -> dict[str, Any]:
    """Parse a message into a change of the agent's options; raise `UnreadableMessage`."""
    try:
        config = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableMessage(f"it is not a map of texts: {str(error)[:120]}") from None
    unknown = sorted(config.keys() - {_PERFHW, _METRICS, _PERIOD})
    if unknown or not config:
        raise UnreadableMessage(f"it says {unknown[0][:80]!r}" if unknown else "it says nothing")
    changes: dict[str, Any] = {}
    if _PERIOD in config:
        changes["period"] = config[_PERIOD]
    if _PERFHW in config:
        changes |= _events(config[_PERFHW].replace(",", " ").split())
    elif _METRICS in config:
        changes |= _chosen(config[_METRICS].replace(",", " ").split())
    return changes


def _events(names: list[str]) -> dict[str, Any]:
    return {"perf_events": names, "enable": ["perf"]} if names else {"disable": ["perf"]}


def _chosen(texts: list[str]) -> dict[str, Any]:
    """Return what colmet-rs' `name[:period[:job]]` chooses. Here all that a source measures has one period."""
    names = []
    for text in texts:
        name, *more = text.split(":")
        if name not in _BACKENDS or len(more) > 2:
            raise UnreadableMessage(f"{text[:80]!r} is not a metric of colmet-rs")
        if any(part != _USUAL for part in more):
            raise UnreadableMessage(f"{text[:80]!r} has a period or a job of its own, which is not possible here")
        names.append(name)
    events = [name for name in names if name in EVENTS]
    sources = [source for source in (MEMORY, CPU) if any(_BACKENDS[name] == source for name in names)]
    changes = _events(events)
    return {**changes, "enable": [*changes.get("enable", ()), *sources]} if sources else changes
