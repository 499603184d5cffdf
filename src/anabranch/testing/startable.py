"""What a server and a cluster have in common: both are context managers, also asynchronous ones."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Self


class Startable(ABC):
    """Started in a ``with`` or ``async with`` statement, closed at its end."""

    @abstractmethod
    def start(self) -> Self:
        """Start, and return when it can be used."""

    @abstractmethod
    def close(self) -> None:
        """Stop."""

    def __enter__(self) -> Self:
        """Start, and return this object."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    async def __aenter__(self) -> Self:
        """Start without blocking the caller's event loop."""
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        """Close without blocking the caller's event loop."""
        await asyncio.to_thread(self.close)
