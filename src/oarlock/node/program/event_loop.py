"""Waiting for frames on many endpoints at once: the channel to the server, and the lines to supervisors."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import NamedTuple, Protocol

from oarlock.node.wire.channel import ChannelClosed, Frame


class PolledEndpoint(Protocol):
    """What can be waited for: an `Endpoint` of frames, or whatever makes frames of what it reads."""

    read_fd: int
    write_fd: int

    @property
    def pending(self) -> int:
        """Bytes that wait for the other end to read."""
        ...

    def flush(self) -> None:
        """Write as much as the other end takes. `ChannelClosed` if it is gone."""
        ...

    def receive(self) -> list[Frame]:
        """Read what is there. `ChannelClosed` at the end."""
        ...


class _Handler(NamedTuple):
    endpoint: PolledEndpoint
    on_frame: Callable[[Frame], None]
    on_end: Callable[[], None]


class EndpointLoop:
    """Calls a handler for each frame that arrives, and one when an endpoint ends."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, _Handler] = {}
        self._masks: dict[int, int] = {}
        self._mask_changes: set[int] = set()  # descriptors on which something was written or may be written now
        self._held_back: set[int] = set()  # those that are not read for a while

    def watch(self, endpoint: PolledEndpoint, on_frame: Callable[[Frame], None], on_end: Callable[[], None]) -> None:
        """Wait for frames of an endpoint from now on."""
        for fd in {endpoint.read_fd, endpoint.write_fd}:
            self._handlers[fd] = _Handler(endpoint, on_frame, on_end)
            self._masks[fd] = select.EPOLLIN if fd == endpoint.read_fd else 0
            self._epoll.register(fd, self._masks[fd])

    def unwatch(self, endpoint: PolledEndpoint) -> None:
        """Forget an endpoint; call this before it is closed."""
        for fd in {endpoint.read_fd, endpoint.write_fd}:
            self._epoll.unregister(fd)
            del self._handlers[fd], self._masks[fd]
            self._mask_changes.discard(fd)
            self._held_back.discard(fd)

    def written(self, endpoint: PolledEndpoint) -> None:
        """Note that frames were queued on an endpoint: it may have to be waited for until it has room."""
        self._mask_changes.add(endpoint.write_fd)

    def hold_back(self, endpoint: PolledEndpoint) -> None:
        """Read no more of an endpoint until `read_all`."""
        self._held_back.add(endpoint.read_fd)
        self._mask_changes.add(endpoint.read_fd)

    def read_all(self) -> None:
        """Read again what was held back."""
        self._mask_changes |= self._held_back
        self._held_back.clear()

    def poll(self, seconds: float) -> None:
        """Wait until something happens or the time is over, and call the handlers."""
        for fd in list(self._mask_changes):
            self._set_mask(fd)
        for fd, happened in self._epoll.poll(seconds):
            handler = self._handlers.get(fd)  # one before it may have dropped this one
            if handler is None:
                continue
            # The end of a pipe that is only written shows as an error; on a socket, frames may wait before the end.
            if fd != handler.endpoint.read_fd and happened & (select.EPOLLERR | select.EPOLLHUP):
                handler.on_end()
            else:
                self._receive(handler)

    def _set_mask(self, fd: int) -> None:
        """Watch for what can be read, and for room to write only while something waits for it."""
        self._mask_changes.discard(fd)
        endpoint = self._handlers[fd].endpoint
        mask = select.EPOLLIN if fd == endpoint.read_fd and fd not in self._held_back else 0
        if fd == endpoint.write_fd and endpoint.pending:
            mask |= select.EPOLLOUT
        if self._masks[fd] != mask:
            self._masks[fd] = mask
            self._epoll.modify(fd, mask)

    def _receive(self, handler: _Handler) -> None:
        self._mask_changes.add(handler.endpoint.write_fd)
        try:
            handler.endpoint.flush()
            frames = handler.endpoint.receive()
        except ChannelClosed:
            handler.on_end()
            return
        for frame in frames:
            handler.on_frame(frame)
