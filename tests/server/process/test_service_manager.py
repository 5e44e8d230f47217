"""What systemd hears of a server."""

import asyncio
import os
import socket

from oarlock.server.process.service_manager import ServiceManager


def listening(path):
    """Return a socket as systemd has it."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.settimeout(20)
    sock.bind(str(path))
    return sock


def test_it_hears_that_a_server_is_ready_and_stops(tmp_path):
    with listening(tmp_path / "notify") as heard:
        manager = ServiceManager.of_environment({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        manager.standing_by()
        manager.serving()
        manager.stopping()
        assert [heard.recv(100) for _ in range(3)] == [
            b"READY=1\nSTATUS=standing by\nWATCHDOG=1",
            b"READY=1\nSTATUS=serving",
            b"STOPPING=1",
        ]


def test_the_watchdog_hears_of_the_event_loop_twice_in_its_time(tmp_path):
    with listening(tmp_path / "notify") as heard:
        variables = {
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "2000",
            "WATCHDOG_PID": str(os.getpid()),
        }
        manager = ServiceManager.of_environment(variables)
        assert variables == {}

        async def beat_until_heard():
            beating = asyncio.create_task(manager.beat())
            texts = [await asyncio.to_thread(heard.recv, 100) for _ in range(3)]
            beating.cancel()
            return texts

        assert asyncio.run(beat_until_heard()) == [b"WATCHDOG=1"] * 3


def test_without_systemd_or_with_one_that_is_gone_nothing_happens(tmp_path):
    ServiceManager.of_environment({}).serving()
    ServiceManager.of_environment({"NOTIFY_SOCKET": str(tmp_path / "gone")}).serving()
    asyncio.run(ServiceManager.of_environment({"WATCHDOG_USEC": "many"}).beat())
