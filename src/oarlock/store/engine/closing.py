"""What is let go at the end of a `with`."""

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Something that `close` lets go, however its `with` ends."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
