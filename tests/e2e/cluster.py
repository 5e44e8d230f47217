"""An instance whose nodes are machines behind a real sshd, each with its own network, processes, disk and boot id."""

import contextlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from oarlock.model.resource import ResourceState
from oarlock.store.queries.cluster import events, resources
from oarlock.store.queries.job import attempts
from oarlock.store.queries.job.attempts import Attempt
from tests import bed
from tests.e2e.instance import Instance


class Cluster(Instance):
    """Machines in a rack, and a server that reaches them by OPENSSH_CMD."""

    def __init__(self, rack: bed.Rack, user: str, *, more: Mapping[str, object] | None = None, **given: Any) -> None:
        self.rack, self.machines = rack, list(rack.machines)
        reach = {
            "NODE_TRANSPORT": "ssh",
            "OPENSSH_CMD": shlex.join(rack.named()),
            "OAR_SSH_CONNECTION_TIMEOUT": 3,
            "OAR_RUNTIME_DIRECTORY": rack.disk,
        }
        names = [one.name for one in self.machines]
        super().__init__(rack.home, user, names, more={**reach, **(more or {})}, **given)

    def states(self) -> list[ResourceState]:
        """The state of each machine's resources."""
        with self.database.read() as tx:
            found = {one.properties["network_address"]: one.properties["state"] for one in resources.listed(tx)}
        return [ResourceState(str(found[name])) for name in self.nodes]

    def attempt(self, job: int) -> Attempt:
        """The last attempt of a job."""
        with self.database.read() as tx:
            return attempts.of_jobs(tx, [job])[-1]

    def node_of(self, job: int) -> int:
        """The number of the machine where the last attempt of a job was, counted from 0."""
        return self.nodes.index(self.attempt(job).nodes[0].name)

    def said(self, job: int, kind: str) -> list[str]:
        """What the events of a kind say of a job."""
        with self.database.read() as tx:
            return [one.event.description for one in events.of_jobs(tx, [job]) if one.event.type == kind]


@contextlib.contextmanager
def cluster(
    workspace: Path, user: str, sshd: Sequence[str] = ("", "", ""), *, made_as: type[Cluster] = Cluster, **more: Any
) -> Iterator[Cluster]:
    """Build machines, one for each of `sshd` (settings added to its sshd), and an instance on them."""
    with bed.rack(workspace) as rack:
        for lines in sshd:
            rack.machine(sshd=lines)
        made = made_as(rack, user, **more)
        try:
            yield made
        finally:
            if made.process is not None:
                made.kill()
            for machine in made.machines:
                machine.cut_power()
            made.close()
