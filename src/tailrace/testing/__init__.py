"""Shipped tools for tests: a real broker in the test's process, and file systems that remember, lose and fail.

`Broker` is imported on first use: who only wants the files need not load a server.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.testing.broker import Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> Any:
    if name == "Broker":
        from tailrace.testing.broker import Broker

        return Broker
    raise AttributeError(name)
