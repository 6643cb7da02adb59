"""Tools for tests, shipped with the package: a broker in the test's process, and file systems that fail.

    broker           `Broker`: a real broker on a free port, in a thread of the test's process
    plugin           pytest fixtures on top of it
    history          records what clients sent and saw, and checks it against a broker's guarantees
    faulty_files     files whose calls fail when a test wants it
    losing_files     files that lose unsynced bytes when the process is killed
    recording_files  an in-memory file system that can rebuild every state a power cut may leave

`Broker` is imported on first use, so that tests that use the files alone do not load a server.
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
