"""File systems and virtual machines as exporters tell of them, and Robinhood's table of sums."""

import math

HOUR = 3600
MIB = 1 << 20


def add_lustre(said, now, *, jobs=((11, "nobody", "vision"), (12, "daemon", "climate")), hours=1):
    """Add two file systems: what their servers count in all and by job, and how full they are."""
    begin, stop = now - hours * HOUR, now + 60
    for system, factor in (("scratch", 3.0), ("home", 0.5)):
        for name, rate in (("read", 900 * MIB), ("write", 300 * MIB)):
            for target in (0, 1):
                own = {"component": "ost", "target": f"{system}-OST000{target}", "cluster": "gofree"}
                said.add(
                    f"lustre_{name}_bytes_total", begin, stop, _wavy(rate * factor / 2), instance="oss:9169", **own
                )
        mdt = {"component": "mdt", "target": f"{system}-MDT0000", "cluster": "gofree"}
        for operation in ("open", "close"):
            said.add("lustre_stats_total", begin, stop, _wavy(2000 * factor), instance="mds:9169", operation=operation,
                     **mdt)  # fmt: skip
        for name, size in (("capacity", 2e9), ("available", 5e8 * factor / 2)):
            said.add(f"lustre_{name}_kilobytes", begin, stop, size, component="ost", target=f"{system}-OST0000",
                     instance="oss:9169", cluster="gofree")  # fmt: skip
    for place, (job, user, project) in enumerate(jobs):
        ours = {"jobid": job, "user": user, "account": project, "cluster": "gofree", "instance": "oss:9169"}
        for name, rate in (("read", 200 * MIB), ("write", 50 * MIB)):
            said.add(f"lustre_job_{name}_bytes_total", begin, stop, lambda age, rate=rate / (place + 1): rate * age,
                     component="ost", target="scratch-OST0000", **ours)  # fmt: skip
        said.add("lustre_job_stats_total", begin, stop, lambda age: 40.0 * age, component="mdt", operation="open",
                 target="scratch-MDT0000", **ours)  # fmt: skip
    said.add("lustre_job_read_bytes_total", begin, stop, lambda age: 8.0 * MIB * age, component="ost", jobid="cp.1000",
             target="home-OST0000", user="games", account="", cluster="gofree", instance="oss:9169")  # fmt: skip


def add_machines(said, now, machines=(("vision", "web", "5e2d-01"), ("vision", "build", "5e2d-02"),
                                      ("climate", "<b>db</b>", "5e2d-03")), *, hours=1):  # fmt: skip
    """Add virtual machines; the last one is off."""
    begin, stop = now - hours * HOUR, now + 60
    for place, (project, name, uuid) in enumerate(machines):
        off = place == len(machines) - 1
        own = {
            "project_name": project,
            "instance_name": name,
            "uuid": uuid,
            "instance": "hyp1:9177",
            "cluster": "gofree",
        }
        for vcpu in range(2 * (place + 1)):
            busy = 0.0 if off else 0.7e9
            said.add("libvirtd_domain_vcpu_time", begin, stop, _wavy(busy), vcpu=vcpu, **own)
        for name_, size in (("current", 8 * MIB), ("usable", (8 if off else 3) * MIB)):
            said.add(f"libvirtd_domain_balloon_{name_}", begin, stop, float(size), **own)
        said.add("libvirtd_domain_domain_state", begin, stop, 5 if off else 1, **own)
        for name_, rate in (("block_read_bytes", 20 * MIB), ("block_write_bytes", 5 * MIB), ("net_rx_bytes", 3 * MIB),
                            ("net_tx_bytes", MIB)):  # fmt: skip
            said.add(f"libvirtd_domain_{name_}", begin, stop, _wavy(0 if off else rate), device="vda", **own)


def _wavy(rate):
    """A counter that grows by so much a second on average, at times less and at times more."""
    return lambda age: rate * (age + 300 * math.sin(age / 900))


ACCT_STAT = """
CREATE TABLE `ACCT_STAT` (
  `{uid}` varbinary(127) NOT NULL, `{gid}` varbinary(127) NOT NULL, `type` enum('symlink','dir','file') NOT NULL,
  `size` bigint unsigned DEFAULT 0, `blocks` bigint unsigned DEFAULT 0, `count` bigint unsigned DEFAULT 0,
  PRIMARY KEY (`{uid}`, `{gid}`, `type`)
);
"""
GIB_BLOCKS = (1 << 30) // 512


def robinhood_tables(*, uid="uid", gid="gid"):
    """Return the statements of Robinhood's sums, in the names of one of its versions."""
    rows = [("nobody", "vision", "file", 700, 9000), ("nobody", "vision", "dir", 1, 400),
            ("daemon", "vision", "file", 200, 120), ("0", "climate", "file", 50, 7),
            ("eve''; DROP TABLE x; --", "climate", "file", 2, 1)]  # fmt: skip
    values = ", ".join(f"('{u}', '{g}', '{kind}', 0, {size * GIB_BLOCKS}, {count})" for u, g, kind, size, count in rows)
    return f"{ACCT_STAT.format(uid=uid, gid=gid)}INSERT INTO `ACCT_STAT` VALUES {values};\n"
