"""What software jobs ran: executables share the core-seconds of a job, modules are read from its script."""

import pytest

from oarlock.model.software import LONGEST_NAME, MOST_NAMES, SoftwareUse, modules_of, used_software


def test_executables_share_what_their_job_held_by_cpu_time():
    executables = {"/opt/bin/gmx": 300.0, "python3.11": 100.0, "bash": 0.5}
    assert used_software(executables, ["gcc/12"], core_seconds=800, cpu_seconds=400.5) == [
        SoftwareUse("executable", "gmx", 599.251, 300.0),
        SoftwareUse("executable", "python3.11", 199.75, 100.0),
        SoftwareUse("module", "gcc/12", 800, 400.5),
    ]


def test_nothing_is_counted_of_executables_that_did_nothing():
    assert used_software({"sleep": 0.0}, [], core_seconds=800, cpu_seconds=0) == []


def test_names_are_bounded_in_number_and_length():
    used = used_software({f"{n:03}" + "x" * 300: 1.0 for n in range(99)}, [], core_seconds=99, cpu_seconds=99)
    assert (len(used), {len(use.name) for use in used}) == (MOST_NAMES, {LONGEST_NAME})


@pytest.mark.parametrize(
    ("script", "modules"),
    [
        ("#!/bin/sh\nmodule load gcc/12 openmpi\n./run", ["gcc/12", "openmpi"]),
        ("  module add cuda/12.1; nvcc x.cu", ["cuda/12.1"]),
        ("ml gcc\nml load R/4.3.1\nml purge\nml unload gcc", ["gcc", "R/4.3.1"]),
        ("module load gcc # the old one\nmodule load gcc", ["gcc"]),
        ("# module load commented\necho module load quoted\nmodule list\nmodule purge", []),
        ('module load "$M" ${X} <b> a;b', ["a"]),
        ("", []),
    ],
)
def test_modules_are_those_that_a_script_loads(script, modules):
    assert modules_of(script) == modules


def test_a_script_that_loads_without_end_costs_little():
    assert len(modules_of("".join(f"module load m{n}\n" for n in range(100_000)))) == MOST_NAMES
