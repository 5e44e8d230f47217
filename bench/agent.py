"""What the agent costs: CPU time and memory of a sample of many jobs, in real cgroups of version 1.

One process sleeps in each job's cgroups, as in the comparison with other programs; it is woken up before each sample,
so that no job is passed over because nothing happened to it.
"""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.harness import figure
from oarlock.measure.agent import Agent
from oarlock.measure.options import AgentOptions
from oarlock.node.hierarchies import UNIFIED, Hierarchy, of_this_machine
from oarlock.node.sources import assemble
from oarlock.node.sources.files import allow_many_files

JOBS = 1000
_TURNS = 7
_CONTROLLERS = {"cpuacct", "cpu", "cpuset", "memory", "blkio", "pids"}
