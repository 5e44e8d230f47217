"""slurm.conf: the nodes and partitions that it declares. Everything else in it is left to its readers."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from oarlock.lang import slurm

_WORD = re.compile(r'(\w+)=("[^"]*"|\S+)')
_GPUS = re.compile(r"gpu(?::[A-Za-z]\w*)?:(\d+)")
_GPU_MODEL = re.compile(r"gpu:([A-Za-z]\w*)")
_DEFAULT = "DEFAULT"
_ALL = "ALL"


class ConfNode(NamedTuple):
    """A node. Memory is in MB, 0 if it is not declared."""

    name: str
    cpus: int
    memory_mb: int
    gpus: int
    gpu_model: str
    features: tuple[str, ...]
    down: bool


class ConfPartition(NamedTuple):
    """A partition, with the names of its nodes."""

    name: str
    nodes: tuple[str, ...]
    priority: int
    is_default: bool
    up: bool
    limits: tuple[str, ...]


class SlurmConf(NamedTuple):
    """What a file declares. `includes` are files that it names, which are not read."""

    cluster: str
    nodes: tuple[ConfNode, ...]
    partitions: tuple[ConfPartition, ...]
    includes: tuple[str, ...]


def parse_conf(text: str) -> SlurmConf:
    """Parse a file: keys in any case, `#` comments, lines that go on behind a backslash."""
    cluster, includes = "", []
    nodes: dict[str, ConfNode] = {}
    rows: list[dict[str, str]] = []
    defaults: dict[str, dict[str, str]] = {"nodename": {}, "partitionname": {}}
    for line in _lines(text):
        words = {key.lower(): value.strip('"') for key, value in _WORD.findall(line)}
        kind = next(iter(words), "")
        if line.lower().startswith("include "):
            includes.append(line.split(None, 1)[1])
        elif kind == "clustername":
            cluster = words[kind]
        elif kind in defaults:
            if words[kind].upper() == _DEFAULT:
                defaults[kind] |= words
            elif kind == "nodename":
                nodes |= {name: _node(name, defaults[kind] | words) for name in slurm.hosts(words[kind])}
            else:
                rows.append(defaults[kind] | words)
    partitions = tuple(_partition(row, tuple(nodes)) for row in rows)
    return SlurmConf(cluster, tuple(nodes.values()), partitions, tuple(includes))


def _lines(text: str) -> Iterator[str]:
    before = ""
    for line in text.splitlines():
        written = before + line.partition("#")[0].rstrip()
        if written.endswith("\\"):
            before = written[:-1] + " "
            continue
        before = ""
        if written.strip():
            yield written.strip()


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.isdecimal() else otherwise


def _node(name: str, words: dict[str, str]) -> ConfNode:
    sockets = _number(words.get("sockets", words.get("boards", "")), 1)
    product = sockets * _number(words.get("corespersocket", ""), 1) * _number(words.get("threadspercore", ""), 1)
    gres = words.get("gres", "")
    model = _GPU_MODEL.search(gres)
    features = words.get("feature", words.get("features", ""))
    return ConfNode(
        name=name,
        cpus=_number(words.get("cpus", words.get("procs", "")), product),
        memory_mb=_number(words.get("realmemory", ""), 0),
        gpus=sum(int(count) for count in _GPUS.findall(gres)),
        gpu_model=model[1] if model else "",
        features=tuple(part for part in features.split(",") if part),
        down=words.get("state", "").upper().startswith(("DOWN", "FAIL", "FUTURE")),
    )


def _partition(words: dict[str, str], everything: tuple[str, ...]) -> ConfPartition:
    listed = words.get("nodes", "")
    limits = ("maxtime", "defaulttime", "maxnodes", "allowgroups", "allowaccounts", "allowqos", "qos", "oversubscribe")
    return ConfPartition(
        name=words["partitionname"],
        nodes=everything if listed.upper() == _ALL else tuple(slurm.hosts(listed)),
        priority=_number(words.get("prioritytier", words.get("priority", "")), 1),
        is_default=words.get("default", "").upper() == "YES",
        up=words.get("state", "UP").upper() == "UP",
        limits=tuple(f"{key}={words[key]}" for key in limits if key in words),
    )
