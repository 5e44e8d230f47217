"""oarlock lustre-proxy: stands before lustre_exporter, and says whose the jobs are."""

from __future__ import annotations

import logging
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

_ABOUT = (
    "Serve the page of a lustre_exporter with the labels `user`, `account` and `fs` on the series of jobs. Prometheus "
    "scrapes this in place of the exporter. A job is looked up once, by Slurm's commands, in slurmdbd's database or in "
    "OAR's; where clients write a program and a user as jobid (`cp.1000`), nothing is looked up."
)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("lustre-proxy", help="say whose the jobs of lustre_exporter are", description=_ABOUT)
    parser.add_argument("--upstream", metavar="URL", required=True,
                        help="the page of lustre_exporter: http://HOST:9169/metrics")  # fmt: skip
    parser.add_argument("--listen", metavar="HOST:PORT", default="localhost:9170",
                        help="where Prometheus scrapes (localhost:9170)")  # fmt: skip
    parser.add_argument("--look-up", metavar="HOW", required=True, help="user and account from: slurm, slurmdbd, oar")
    parser.add_argument("--database", metavar="FILE", type=Path, help="how to reach the database of slurmdbd or OAR")
    parser.add_argument("--slurm-cluster", metavar="NAME", default="", help="the cluster's name in slurmdbd")
    parser.add_argument("--cluster", metavar="NAME", default="", help="a label `cluster` for the series of jobs")
    parser.add_argument("--tls-certificate", metavar="FILE", type=Path, help="serve with TLS")
    parser.add_argument("--tls-key", metavar="FILE", type=Path, help="its key")
    parser.add_argument("--scrape-token-file", metavar="FILE", type=Path, help="the token that scrapes must carry")
    parser.add_argument("--open-to-all", action="store_true", help="listen beyond this machine without TLS and token")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Serve until SIGTERM or SIGINT."""
    from oarlock.measure.agent import read_token
    from oarlock.measure.cluster_lookup import start_lookup
    from oarlock.measure.http import MetricsAccess, MetricsServer, check_address
    from oarlock.measure.lustre_proxy import LustreProxy
    from oarlock.measure.options import address, make_options
    from oarlock.model.errors import ConfigRefused
    from oarlock.node import log_lines

    log_lines.to_stderr("oarlock lustre-proxy: %(message)s", level=logging.INFO)
    where = address(arguments.listen)
    if where is None:
        raise ConfigRefused("A proxy that listens nowhere serves nobody.", hint="Write HOST:PORT.")
    token = arguments.scrape_token_file
    access = MetricsAccess(
        arguments.tls_certificate, arguments.tls_key, read_token(token) if token is not None else None
    )
    check_address(where[0], access, open_to_all=arguments.open_to_all)
    texts = {"look_up": arguments.look_up, "slurm_cluster": arguments.slurm_cluster}
    if arguments.database is not None:
        texts["database"] = str(arguments.database)
    look_up = start_lookup(make_options(texts))
    proxy = LustreProxy(arguments.upstream, look_up, cluster=arguments.cluster)
    server = MetricsServer(where, proxy.page, access)
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    logging.getLogger(__name__).info("serving /metrics of %s", arguments.upstream)
    over.wait()
    server.close()
    look_up.close()
