"""Keys of OAR 2.5 that have a twin are read as that one."""

from pathlib import Path

import pytest

from oarlock.config import KEYS, Config, load
from oarlock.model.errors import ConfigRefused
from oarlock.settings.reader import TWINS


def settings(path: Path, text: str):
    file = path / "oar.conf"
    file.write_text(text)
    return load(file)


def test_every_twin_is_a_setting():
    assert {twin.name for twin in TWINS.values()} <= KEYS.keys()
    assert not TWINS.keys() & KEYS.keys()


def test_values_of_oar_are_read_in_its_own_forms(tmp_path: Path):
    loaded = settings(
        tmp_path,
        "SCHEDULER_FAIRSHARING_PROJECT_TARGETS=\"{ first => 75, 'rest' => 5, default => 20.5 }\"\n"
        "SCHEDULER_FAIRSHARING_WINDOW_SIZE=7200\nLEON_SOFT_WALLTIME=11\nLEON_WALLTIME=77\n"
        'ENERGY_SAVING_NODE_MANAGER_WAKE_UP_CMD="/usr/bin/wake --all"\n',
    )
    config = loaded.config
    assert config.karma_project_targets == {"first": 75.0, "rest": 5.0, "default": 20.5}
    assert (config.karma_window, config.jobdel_softwalltime, config.jobdel_walltime) == (7200, 11, 77)
    assert config.scheduler_node_manager_wake_up_cmd == ("/usr/bin/wake", "--all")
    assert loaded.warnings == ()


def test_keys_of_the_energy_module_are_read_in_its_own_forms(tmp_path: Path):
    loaded = settings(
        tmp_path,
        "ENERGY_SAVING_INTERNAL=yes\nENERGY_SAVING_WINDOW_SIZE=25\nENERGY_SAVING_WINDOW_TIME=60\n"
        'ENERGY_SAVING_NODE_MANAGER_WAKEUP_TIMEOUT="1:500 11:1000"\nENERGY_SAVING_WINDOW_TIMEOUT=90\n'
        "ENERGY_SAVING_NODES_KEEPALIVE=\"cluster='paradent':4 & cluster=paraquad:nodes=6,besteffort='YES':2\"\n",
    )
    config = loaded.config
    windows = (config.scheduler_node_manager_window_size, config.scheduler_node_manager_window_time)
    assert (*windows, config.scheduler_node_manager_timeout) == (25, 60, 90)
    assert config.scheduler_node_manager_wakeup_timeout == ((1, 500), (11, 1000))
    shown = KEYS["SCHEDULER_NODE_MANAGER_KEEP_AWAKE"].shown(config)
    assert shown == "cluster = 'paradent':4 & cluster = 'paraquad':6 & besteffort = 'YES':2"
    assert loaded.warnings == ()


def test_keys_of_the_energy_module_mean_nothing_while_it_is_off(tmp_path: Path):
    loaded = settings(tmp_path, "ENERGY_SAVING_NODE_MANAGER_SLEEP_CMD=/usr/bin/halt\nENERGY_SAVING_INTERNAL=no\n")
    assert loaded.config == Config()
    [warning] = loaded.warnings
    assert warning.endswith("SLEEP_CMD has no effect: ENERGY_SAVING_INTERNAL is `no`.")


def test_keys_that_only_kept_passes_short_are_warned_of(tmp_path: Path):
    loaded = settings(tmp_path, "SCHEDULER_FAIRSHARING_MAX_JOB_PER_USER=30\n")
    assert loaded.config == Config()
    assert "MAX_JOB_PER_USER has no effect: every waiting job is planned" in loaded.warnings[0]


def test_the_own_key_wins_over_its_twin(tmp_path: Path):
    loaded = settings(tmp_path, "LEON_WALLTIME=77\nJOBDEL_WALLTIME=400\n")
    assert loaded.config.jobdel_walltime == 400
    assert "LEON_WALLTIME has no effect: JOBDEL_WALLTIME is set, too." in loaded.warnings[0]


@pytest.mark.parametrize(
    "text",
    [
        "LEON_WALLTIME=soon",
        'SCHEDULER_FAIRSHARING_USER_TARGETS="{ a > 3 }"',
        "ENERGY_SAVING_INTERNAL=perhaps",
        "ENERGY_SAVING_NODES_KEEPALIVE=\"cluster='a'\"",
        'ENERGY_SAVING_NODES_KEEPALIVE="type=:3"',
        'ENERGY_SAVING_NODE_MANAGER_WAKEUP_TIMEOUT="11:500 1:1000"',
    ],
)
def test_a_bad_value_is_refused_under_the_name_in_the_file(tmp_path: Path, text: str):
    with pytest.raises(ConfigRefused, match=f"line 1: {text.partition('=')[0]} is "):
        settings(tmp_path, text)
