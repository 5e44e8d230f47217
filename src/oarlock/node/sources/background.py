"""Measurements that take long, such as asking a management controller: in a thread, with a period of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from oarlock.node.sources.files import Values

STALE_AFTER = 3
"""Periods after which an old answer is no answer any more."""


class BackgroundSource:
    """Measure periodically in a thread of its own; samples use the latest answer and never wait.

    A failure is raised in the sampler once, and the measurement tried again at the next period.
    """

    def __init__(self, name: str, ask: Callable[[], Values], period: float) -> None:
        self.name = name
        self._ask, self._period = ask, period
        self._answer: tuple[float, Values] | None = None
        self._failure: Exception | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"measure-{name}", daemon=True)
        self._thread.start()

    def read(self, values: Values) -> None:
        """Add the latest answer to `values`, if it is not too old."""
        failure, self._failure = self._failure, None
        answer = self._answer
        if answer and time.monotonic() - answer[0] < self._period * STALE_AFTER:
            values.update(answer[1])
        if failure:
            raise failure

    def close(self) -> None:
        """End the thread; a question under way is not waited for."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._answer = (time.monotonic(), self._ask())
            except Exception as error:  # noqa: BLE001  the thread must go on; `read` raises it in the sampler
                self._failure = error
            self._over.wait(self._period)
