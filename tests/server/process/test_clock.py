"""The wall clock is compared with the one that never jumps."""

from oarlock.server.process.clock import JumpDetector


class _Clock:
    wall = steady_time = 1000.0

    def now(self):
        return self.wall

    def steady(self):
        return self.steady_time


def test_a_jump_is_seen_once_and_time_that_passes_is_none():
    clock = _Clock()
    wall = JumpDetector(clock)
    clock.wall, clock.steady_time = 1010.0, 1010.0
    assert wall.jump() == 0
    clock.wall, clock.steady_time = 4630.0, 1030.0
    assert (wall.jump(), wall.jump()) == (3600, 0)
    clock.wall = 0.0
    assert (wall.jump(), wall.jump()) == (-4630, 0)


def test_a_small_correction_is_no_jump():
    clock = _Clock()
    wall = JumpDetector(clock)
    clock.wall += 2
    assert wall.jump() == 0
