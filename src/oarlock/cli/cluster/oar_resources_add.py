"""oar_resources_add: print the commands that add the resources of hosts which are all alike."""

from __future__ import annotations

import os
import re
import sys

from oarlock.cli import output
from oarlock.cli.options import CommandOptions
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

OPTIONS = CommandOptions(
    "oar_resources_add",
    "Print the commands that add the resources of hosts which are all alike.",
    usage=("-H HOSTS [-C CPUS] [-c CORES] [-t THREADS [-T]] [-g GPUS] [OPTION]...",),
    about="Nothing is asked of the hosts, and nothing is changed: let a shell carry the commands out.",
)
OPTIONS.flag("-T --use-threads", "a resource is a thread, with a property `thread`")
OPTIONS.number("-H --hosts=N", "how many hosts")
OPTIONS.number("-C --cpus=N", "how many CPUs (sockets) a host has (2)")
OPTIONS.number("-c --cores=N", "how many cores a CPU has (4)")
OPTIONS.number("-t --threads=N", "how many threads a core has (1)")
OPTIONS.number("-g --gpus=N", "how many GPUs a host has (none)")
OPTIONS.number("--host0=N", "the number of the first host (1)")
OPTIONS.number("--cpu0=N", "the number of the first CPU (1)")
OPTIONS.number("--core0=N", "the number of the first core (1)")
OPTIONS.number("--thread0=N", "the number of the first thread (1)")
OPTIONS.number("--gpu0=N", "the number of the first GPU (1)")
OPTIONS.number("--cpusets --cpuset=N", "how many CPU numbers a host has, if not one for each thread")
OPTIONS.text("--cputopo=LIST|RR", "the CPU numbers in the order of the cores: 0,2,1,3, or RR for round robin")
OPTIONS.number("--gpudevices=N", "how many GPU devices a host has, if not one for each GPU")
OPTIONS.text("--gputopo=LIST", "the numbers of GPU devices in the order of the GPUs")
OPTIONS.text("-P --host-prefix=TEXT", "what hosts are called before their number (node-)")
OPTIONS.text("-S --host-suffix=TEXT", "what hosts are called behind their number")
OPTIONS.flag("-a --auto-offset", "begin behind the highest numbers of hosts, CPUs, cores, threads and GPUs there are")
OPTIONS.flag("-p --no-create-properties", "no commands that add properties")
OPTIONS.text("-A --append=TEXT", "put this behind each command, such as -p cluster=a")
OPTIONS.flag("-R --repair", "correct cpu, cpuset and GPUs of resources that are there, by host and core")
OPTIONS.text("-o --write-to=FILE", "write the commands to a file, too")
OPTIONS.flag("-Y --yaml", "print YAML in the place of commands")
OPTIONS.flag("--debug", "print the numbers that it counts with on standard error")
OPTIONS.end()
OPTIONS.example("oar_resources_add -H 16 -C 2 -c 8 -a | sh", "add 16 hosts of 16 cores behind those that are there")

_MOST_LINES = 100_000


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Print the commands, or YAML."""
    if parsed.words:
        raise RequestRefused(
            f"`{parsed.words[0]}` is not an option.", kind="BadOption", hint="-H N says how many hosts."
        )
    rows = list(_rows(parsed, _first_numbers(client, parsed)))
    lines = list(_yaml(rows, parsed)) if parsed.given("yaml") else list(_commands(rows, parsed))
    if (path := parsed.text("write_to")) is not None:
        _write(path, lines)
    for line in lines:
        out.line(line)


def _count(parsed: ParsedOptions, key: str, default: int) -> int:
    number = parsed.number(key)
    number = default if number is None else number
    if number < 1:
        raise RequestRefused(f"--{key} is {number}; it is at least 1.", kind="BadOption", hint=f"Write --{key}=4.")
    return number


def _first_numbers(client: Client, parsed: ParsedOptions) -> dict[str, int]:
    """Return the first number of each kind: as given, else 1, else (with -a) behind the highest one there is."""
    first = {name: parsed.number(f"{name}0") for name in ("host", "cpu", "core", "thread", "gpu")}
    resources = client.resources()["resources"] if parsed.given("auto_offset") else []
    return {name: _highest(resources, name) + 1 if number is None else number for name, number in first.items()}


def _highest(resources: list[Any], name: str) -> int:
    """Return the highest number that a property has; of names of hosts, the number in them."""
    matches = [re.search(r"[0-9]{1,9}", str(resource.get(name) or "")) for resource in resources]
    return max((int(match[0]) for match in matches if match), default=0)


def _rows(parsed: ParsedOptions, first: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Yield the properties of each resource, host by host."""
    if not parsed.given("hosts"):
        raise RequestRefused("How many hosts?", kind="BadOption", hint="oar_resources_add -H 16 -C 2 -c 8")
    hosts, cpus, cores = _count(parsed, "hosts", 1), _count(parsed, "cpus", 2), _count(parsed, "cores", 4)
    threads = _count(parsed, "threads", 1)
    numbers = _cpu_numbers(parsed, cpus, _count(parsed, "cpusets", cpus * cores * threads))
    devices = _devices(parsed, cpus, cores)
    each = threads if parsed.given("use_threads") else 1
    if parsed.given("debug"):
        sys.stderr.write(f"CPU numbers: {numbers}, GPU devices: {devices}, first numbers: {first}\n")
    if hosts * cpus * cores * each > _MOST_LINES:
        raise RequestRefused(
            f"{hosts * cpus * cores * each} resources are too many at once.", kind="BadOption", hint="Add fewer hosts."
        )
    for host in range(hosts):
        name = f"{_text(parsed, 'host_prefix', 'node-')}{host + first['host']}{_text(parsed, 'host_suffix', '')}"
        for place in range(cpus * cores * each):
            core = place // each
            row: dict[str, Any] = {"network_address": name, "host": name}
            row["cpu"] = host * cpus + core // cores + first["cpu"]
            row["core"] = host * cpus * cores + core + first["core"]
            if parsed.given("use_threads"):
                row["thread"] = host * cpus * cores * each + place + first["thread"]
            row["cpuset"] = numbers[place % len(numbers)]
            if devices:
                gpu = core * len(devices) // (cpus * cores)
                row |= {"gpu": host * len(devices) + gpu + first["gpu"], "gpudevice": devices[gpu]}
            yield row


def _text(parsed: ParsedOptions, key: str, default: str) -> str:
    text = parsed.text(key)
    text = default if text is None else text
    if not re.fullmatch(r"[A-Za-z0-9_.:-]*", text):
        raise RequestRefused(f"`{text[:40]}` cannot be a part of a host's name.", kind="BadOption", hint="Write node-.")
    return text


def _cpu_numbers(parsed: ParsedOptions, cpus: int, count: int) -> list[int]:
    """Return the CPU numbers of a host in the order of its cores."""
    text = parsed.text("cputopo")
    if text == "RR":
        return [at * cpus % count + at * cpus // count for at in range(count)]
    return list(range(count)) if text is None else _listed(text, "cputopo", count)


def _devices(parsed: ParsedOptions, cpus: int, cores: int) -> list[int]:
    """Return the device of each GPU of a host; cores are divided among them, all of a CPU or parts of it."""
    gpus = parsed.number("gpus") or 0
    if not gpus:
        return []
    if gpus > 1 and (gpus % cpus or cores % (gpus // cpus)):
        raise RequestRefused(
            f"{gpus} GPUs cannot be divided among {cpus} CPUs of {cores} cores.",
            kind="BadOption",
            hint="Give 1, or a number that divides the cores of each CPU evenly.",
        )
    count = _count(parsed, "gpudevices", gpus)
    text = parsed.text("gputopo")
    devices = list(range(count)) if text is None else _listed(text, "gputopo", count)
    return [devices[gpu % count] for gpu in range(gpus)]


def _listed(text: str, key: str, count: int) -> list[int]:
    words = text.replace(",", " ").split()
    if len(words) != count or not all(re.fullmatch("[0-9]{1,9}", word) for word in words):
        raise RequestRefused(
            f"--{key} `{text[:40]}` is not a list of {count} numbers.", kind="BadOption", hint="Write them as 0,2,1,3."
        )
    return [int(word) for word in words]


def _commands(rows: list[dict[str, Any]], parsed: ParsedOptions) -> Iterator[str]:
    more = f" {text}" if (text := parsed.text("append")) else ""
    if not parsed.given("no_create_properties") and not parsed.given("repair"):
        for name in rows[0]:
            if name not in {"network_address", "cpu", "cpuset"}:  # which every cluster has
                yield f"oarproperty -a {name}" + (" -c" if name == "host" else "")
    for row in rows:
        host = f"'{row['network_address']}'"
        values = " ".join(f"-p {name}={row[name]}" for name in row if name not in {"network_address", "host"})
        if parsed.given("repair"):
            names = [name for name in ("cpu", "cpuset", "gpu", "gpudevice") if name in row]
            fixed = " ".join(f"-p {name}={row[name]}" for name in names)
            which = f"host = {host} AND core = {row['core']}"
            which += f" AND thread = {row['thread']}" if "thread" in row else ""
            yield f'oarnodesetting --sql "{which}" {fixed}{more}'
        else:
            yield f"oarnodesetting -a -h {host} -p host={host} {values}{more}"


def _yaml(rows: list[dict[str, Any]], parsed: ParsedOptions) -> Iterator[str]:
    yield "---"
    for row in rows:
        for place, (name, value) in enumerate(row.items()):
            shown = f"'{value}'" if isinstance(value, str) else value
            yield f"{'- ' if place == 0 else '  '}{name}: {shown}"
        if text := parsed.text("append"):
            yield text


def _write(path: str, lines: list[str]) -> None:
    """Write the lines to a file, never through a link."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
    except OSError as error:
        raise RequestRefused(
            f"{path} cannot be written: {error.strerror}.", kind="BadFile", hint="Name another file with -o."
        ) from None
