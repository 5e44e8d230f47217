"""Samples as nodes with an older program send them."""

import json
import struct
from collections.abc import Mapping

from oarlock.node.measure.wire import _COUNT


def encode_version_1(at: float, node: Mapping[str, float], jobs: Mapping[int, Mapping[str, float]]) -> bytes:
    """Encode a sample as nodes with an older program do."""
    places: dict[str, int] = {}
    tables = [_pack_version_1(values, places) for values in (node, *jobs.values())]
    head = json.dumps({"at": at, "jobs": list(jobs), "names": list(places)}, separators=(",", ":")).encode()
    return b"".join([_COUNT.pack(len(head)), head, *tables])


def _pack_version_1(values: Mapping[str, float], places: dict[str, int]) -> bytes:
    count = len(values)
    which = [places.setdefault(name, len(places)) for name in values]
    return struct.pack(f"<I{count}I{count}d", count, *which, *values.values())
