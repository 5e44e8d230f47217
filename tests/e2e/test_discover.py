"""oarlock discover on machines behind a real sshd, against a live server: what is missing is added, once."""

import json

import pytest

from oarlock.model.job import FINAL
from oarlock.store.queries.cluster import resources
from tests.bed import needs_root
from tests.e2e.cluster import cluster
from tests.e2e.terminal import job_of, piped
from tests.e2e.test_resources import command

pytestmark = [needs_root, pytest.mark.component("sshd")]


def test_new_machines_are_found_added_once_and_run_jobs(workspace, two_users):
    with cluster(workspace, two_users[0], ("",)) as site:
        known, new = site.machines[0], site.rack.machine()
        site.rack.named()  # the server's ssh knows the new one, too
        site.serve()
        words = ("discover", "--config", str(site.settings))
        proposed = command(site, "oarlock", *words, known.name, new.name)
        assert (proposed.returncode, proposed.stderr) == (0, "")
        commands = [line for line in proposed.stdout.splitlines() if not line.startswith("#")]
        assert commands[:2] == ["oarproperty -a host -c", "oarproperty -a mem"]
        assert all(f"oarnodesetting -a -h {new.name} " in line for line in commands[2:])
        assert f"# {known.name}: " in proposed.stdout

        done = command(site, "oarlock", *words, "-x", f"{known.name},{new.name}", "nowhere[1-2]")
        assert (done.returncode, done.stdout.splitlines()[-1]) == (
            2,
            f"{new.name}: {len(commands) - 2} resources added",
        )
        assert [line.partition(":")[0] for line in done.stderr.splitlines()[:2]] == ["nowhere1", "nowhere2"]
        assert "oarlock: 2 of 4 hosts were not reached: nowhere[1-2]." in done.stderr

        again = command(site, "oarlock", *words, "-x", "--json", known.name, new.name)
        found = json.loads(again.stdout)
        assert (again.returncode, found["resources"], found["properties"]) == (0, [], {})
        assert found["hosts"][new.name]["present"] == len(commands) - 2
        with site.database.read() as tx:
            rows = [row.properties for row in resources.listed(tx) if row.properties["network_address"] == new.name]
        assert {row["host"] for row in rows} == {new.name}
        assert len({row["core"] for row in rows}) == len({row["cpuset"] for row in rows}) == len(rows)

        job = job_of(
            piped(site, site.user, "-p", f"host='{new.name}'", "-l", "core=1,walltime=0:5", "true")[1].encode()
        )
        site.until(lambda: site.job(job).state in FINAL)
        assert site.job(job).exit_code == 0
        site.nodes.append(new.name)  # for the end of the instance
