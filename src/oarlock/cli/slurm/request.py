"""From Slurm's options to the body of a submission: resources, conditions, dates, dependencies, notices."""

from __future__ import annotations

import os

from oarlock.cli.options import signal_number
from oarlock.cli.slurm import options as words
from oarlock.cli.slurm.options import not_translated
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oarlock.cli.options import ParsedOptions
    from oarlock.client import Client

MOST_ALTERNATIVES = 16
_MEMORY_PROPERTY = "mem"  # GB of a node, as `oarlock discover` writes it
_DEPENDENCIES = {"afterok": "ok", "afterany": "any", "afternotok": "notok"}
_MAIL = {"BEGIN": ["START"], "END": ["END"], "FAIL": ["ERROR"], "ALL": ["START", "END", "ERROR"]}


class TaskShape:
    """How much a job asks for: nodes (None: as they come), tasks, cores of a task, GPUs of a node."""

    def __init__(self, parsed: ParsedOptions) -> None:
        self.nodes = words.count(parsed, "nodes", "--nodes")
        self.tasks_per_node = words.count(parsed, "ntasks_per_node", "--ntasks-per-node")
        self.cores_per_task = words.count(parsed, "cpus_per_task", "--cpus-per-task")
        self.gpus = _gpus(parsed)
        self.exclusive = parsed.given("exclusive")
        self.named = words.node_names(text, "--nodelist") if (text := parsed.text("nodelist")) else []
        tasks = words.count(parsed, "ntasks", "--ntasks")
        if self.named:
            if self.nodes not in {None, len(self.named)}:
                raise not_translated(
                    "--nodelist", parsed.text("nodelist") or "", "Name as many nodes as --nodes asks for."
                )
            self.nodes = len(self.named)
        if self.nodes is None and self.tasks_per_node and tasks:
            self.nodes = -(-tasks // self.tasks_per_node)
        if self.nodes is None and (self.exclusive or self.gpus or self.tasks_per_node):
            self.nodes = 1
        self.tasks = tasks or (self.nodes or 1) * (self.tasks_per_node or 1)
        if self.nodes is not None and self.nodes > self.tasks:
            self.tasks = self.nodes  # as Slurm: at least a task a node
        self.tasks_are_given = tasks is not None or self.tasks_per_node is not None
        self.least_cores = 0  # of a node, for its memory
        self.sizes: list[int] = []  # the cores of each node
        self.memory: int | None = None  # MB that were asked for
        self.memory_is_per_core = False

    @property
    def cores(self) -> int:
        """Cores in all."""
        return self.tasks * (self.cores_per_task or 1)

    def resources(self) -> list[str]:
        """Return the requests, of which the job gets one."""
        each = self.cores_per_task or 1
        if self.nodes is not None:
            return [self._on_nodes(self.nodes)]
        if self.tasks > 1 and each == 1 and self.least_cores <= 1:
            return [f"/core={self.tasks}"]
        # The cores of a task stay together: so many tasks on each of so many nodes.
        splits = [nodes for nodes in range(1, self.tasks + 1) if self.tasks % nodes == 0]
        fitting = [nodes for nodes in splits if self._fits(nodes)] or splits
        return [self._on_nodes(nodes) for nodes in fitting[:MOST_ALTERNATIVES]]

    def _fits(self, nodes: int) -> bool:
        """Return whether there are so many nodes with enough cores; nothing is known before they were looked at."""
        return sum(cores >= self._cores_of_node(nodes) for cores in self.sizes) >= nodes

    @property
    def is_split(self) -> bool:
        """Whether the tasks may be on one node or on several, in groups of the same size."""
        return self.nodes is None and self.tasks > 1 and (self.cores_per_task or 1) > 1

    def _cores_of_node(self, nodes: int) -> int:
        each = self.cores_per_task or 1
        return max(-(-self.tasks // nodes) * each, (self.tasks_per_node or 0) * each, self.least_cores)

    def _on_nodes(self, nodes: int) -> str:
        if self.exclusive:
            return f"/nodes={nodes}"
        per_node = self._cores_of_node(nodes)
        if not self.gpus:
            return f"/nodes={nodes}/core={per_node}"
        if per_node == 1:
            return f"/nodes={nodes}/gpu={self.gpus}"  # with the cores that go with them
        return f"/nodes={nodes}/gpu={self.gpus}/core={-(-per_node // self.gpus)}"


def _node_cores(client: Client) -> list[int]:
    """Return how many cores each node has."""
    cores: dict[str, int] = {}
    for resource in client.resources()["resources"]:
        name = str(resource.get("network_address") or "")
        cores[name] = cores.get(name, 0) + 1
    return list(cores.values())


def _gpus(parsed: ParsedOptions) -> int:
    gres = parsed.text("gres")
    if gres is None:
        key, option = ("gpus_per_node", "--gpus-per-node") if parsed.given("gpus_per_node") else ("gpus", "--gpus")
        text = parsed.text(key)
        return 0 if text is None else words.at_least_one(text, option)
    name, _, number = gres.partition(":")
    if name != "gpu" or ":" in number:
        raise not_translated("--gres", gres, "Only --gres=gpu:COUNT is known; a kind of GPU is a property (-C).")
    return words.at_least_one(number or "1", "--gres=gpu:")


def submission(client: Client, parsed: ParsedOptions, notes: list[str]) -> tuple[dict[str, Any], TaskShape]:
    """Return the body of `POST /jobs` without a command, and the shape of the job."""
    shape = TaskShape(parsed)
    where = _conditions(parsed, shape)
    where += _memory(client, parsed, shape, notes)
    if shape.is_split:
        shape.sizes = _node_cores(client)
    walltime = f",walltime={words.seconds(limit)}" if (limit := parsed.text("time")) else ""
    body: dict[str, Any] = {"resources": [f"{request}{_clock(walltime)}" for request in shape.resources()]}
    if where:
        body["properties"] = " AND ".join(f"({condition})" for condition in where)
    for key, field in (("partition", "queue"), ("account", "project"), ("job_name", "name")):
        if (text := parsed.text(key)) is not None:
            body[field] = text
    body["directory"] = os.path.normpath(os.path.join(os.getcwd(), parsed.text("chdir") or ""))
    _add_signal(body, parsed)
    _add_mail(body, parsed)
    types = [*_dependency(body, parsed), *_begin(parsed)]
    if (qos := parsed.text("qos")) is not None:
        types.append(f"qos={qos}")
    if types:
        body["types"] = types
    body["submitted_from"] = f"{os.uname().nodename}:{os.getpid()}"
    return body, shape


def _clock(walltime: str) -> str:
    if not walltime:
        return ""
    left = int(walltime.rpartition("=")[2])
    return f",walltime={left // 3600}:{left // 60 % 60:02}:{left % 60:02}"


def _conditions(parsed: ParsedOptions, shape: TaskShape) -> list[str]:
    where = []
    if shape.named:
        where.append(f"network_address IN ({words.quoted_list(shape.named)})")
    if (text := parsed.text("exclude")) is not None:
        where.append(f"network_address NOT IN ({words.quoted_list(words.node_names(text, '--exclude'))})")
    if (text := parsed.text("constraint")) is not None:
        where.append(_features(text))
    return where


def _features(text: str) -> str:
    """Translate features: words with `&` and `|` between."""
    if not text or any(character in text for character in "[]()*,"):
        raise not_translated("--constraint", text, "Write FEATURE&FEATURE or FEATURE|FEATURE.")
    if "&" in text and "|" in text:
        raise not_translated("--constraint", text, "Write either & or | between features.")
    joint = "|" if "|" in text else "&"
    conditions = [_feature(word, text) for word in text.split(joint)]
    return f" {'OR' if joint == '|' else 'AND'} ".join(conditions)


def _feature(word: str, text: str) -> str:
    name, equals, value = word.strip().partition("=")
    if not name.replace("_", "").isalnum() or not name.isascii() or name[0].isdecimal():
        raise not_translated("--constraint", text, f"`{word}` is not the name of a property (`oarproperty -l`).")
    return f"{name} = {words.quoted_list([value if equals else 'YES'])}"


def _memory(client: Client, parsed: ParsedOptions, shape: TaskShape, notes: list[str]) -> list[str]:
    """Ask for enough memory: nodes that have it, and as many cores as it goes with."""
    per_node, per_core = parsed.text("mem"), parsed.text("mem_per_cpu")
    if per_node is None and per_core is None:
        return []
    option = "--mem" if per_node is not None else "--mem-per-cpu"
    needed = words.megabytes(per_node or per_core or "", option)
    shape.memory, shape.memory_is_per_core = int(needed), per_node is None
    if needed == 0:
        shape.exclusive, shape.nodes = True, shape.nodes or 1
        return []
    nodes = _node_memory(client, option)
    if per_node is None:
        fitting = [(memory, cores) for memory, cores in nodes if memory / cores >= needed]
        if not fitting:
            raise RequestRefused(
                f"--mem-per-cpu={per_core}: no node has that much memory for each of its cores.", kind="BadOption",
                hint=f"At most {int(max(memory / cores for memory, cores in nodes))}M; ask for more cores instead.",
            )  # fmt: skip
        return [f"{_MEMORY_PROPERTY} >= {-(-min(memory for memory, _ in fitting) // 1024):.0f}"]
    large = [(memory, cores) for memory, cores in nodes if memory >= needed]
    if not large:
        raise RequestRefused(
            f"--mem={per_node}: no node has that much memory.", kind="BadOption",
            hint=f"The largest has {int(max(memory for memory, _ in nodes))}M.",
        )  # fmt: skip
    cores = max(-(-needed * number // memory) for memory, number in large)
    requested = -(-shape.tasks // (shape.nodes or shape.tasks)) * (shape.cores_per_task or 1)
    if cores > requested and not shape.exclusive:
        shape.least_cores = int(cores)
        notes.append(f"--mem={per_node}: memory goes with cores here, so {int(cores)} cores of a node are asked for.")
    return [f"{_MEMORY_PROPERTY} >= {int(-(-needed // 1024))}"]


def _node_memory(client: Client, option: str) -> list[tuple[float, int]]:
    """Return the memory in MB and the number of cores of each node."""
    nodes: dict[str, list[float]] = {}
    for resource in client.resources()["resources"]:
        memory = resource.get(_MEMORY_PROPERTY)
        if str(memory or "").isdecimal() and int(memory):
            nodes.setdefault(str(resource.get("network_address")), []).append(int(memory) * 1024.0)
    if not nodes:
        hint = f"Leave it out, or ask an administrator to set the property {_MEMORY_PROPERTY} (GB of a node)."
        raise RequestRefused(
            f"{option} cannot be translated: nodes do not tell their memory.", kind="BadOption", hint=hint
        )
    return sorted({(sizes[0], len(sizes)) for sizes in nodes.values()})


def _add_signal(body: dict[str, Any], parsed: ParsedOptions) -> None:
    text = parsed.text("signal")
    if text is None:
        return
    name, at, before = text.removeprefix("B:").removeprefix("R:").partition("@")
    body["signal"] = signal_number(name)
    body["checkpoint"] = words.at_least_one(before, "--signal SIGNAL@SECONDS") if at else 60


def _add_mail(body: dict[str, Any], parsed: ParsedOptions) -> None:
    kinds = [kind.strip().upper() for kind in (parsed.text("mail_type") or "NONE").split(",")]
    if kinds == ["NONE"]:
        return
    unknown = [kind for kind in kinds if kind not in _MAIL]
    if unknown:
        raise not_translated("--mail-type", unknown[0], "Known are BEGIN, END, FAIL, ALL and NONE.")
    tags = [tag for tag in ("START", "END", "ERROR") if any(tag in _MAIL[kind] for kind in kinds)]
    user = parsed.text("mail_user") or os.environ.get("USER") or str(os.getuid())
    body["notify"] = f"[{','.join(tags)}]mail:{user}"


def _dependency(body: dict[str, Any], parsed: ParsedOptions) -> list[str]:
    text = parsed.text("dependency")
    if text is None:
        return []
    kinds, jobs = set(), []
    for part in text.split(","):
        kind, _, numbers = part.partition(":")
        if kind not in _DEPENDENCIES or "?" in part or "+" in part or not numbers:
            raise not_translated("--dependency", text, "Known are afterok:JOB, afterany:JOB and afternotok:JOB.")
        kinds.add(_DEPENDENCIES[kind])
        jobs += [words.at_least_one(number, "--dependency") for number in numbers.split(":")]
    if len(kinds) > 1:
        raise not_translated("--dependency", text, "All jobs of a dependency are of one kind here.")
    body["after"] = jobs
    return [f"dependency={kinds.pop()}"]


SPANS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}


def _begin(parsed: ParsedOptions) -> list[str]:
    text = parsed.text("begin")
    if text is None or text == "now":
        return []
    import time

    at = _after_now(text) if text.startswith("now+") else _instant(text)
    return [f"postpone={time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(at))}"]


def _after_now(text: str) -> int:
    import time

    span = text[4:]
    digits = span.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = span[len(digits) :].rstrip("s") or "second"
    if unit not in SPANS:
        raise not_translated("--begin", text, "Write now+2hours: seconds, minutes, hours, days or weeks.")
    return int(time.time()) + words.at_least_one(digits, "--begin=now+") * SPANS[unit]


def _instant(text: str) -> int:
    import time

    for form in ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"):
        try:
            return int(time.mktime(time.strptime(text, form)))
        except ValueError:
            continue
    raise not_translated("--begin", text, "Write now+2hours, or a date: 2027-03-01T08:00.")
