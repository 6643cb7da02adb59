"""The hand-off of catch-up consumers as connections see it. `server/handoff` implements it."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tailrace.server.net.connection import Connection


class HandOff(Protocol):
    def offer(self, connection: "Connection", frame: memoryview) -> bool:
        """Offers the connection of a client that most likely catches up, with the Fetch that has just arrived. On True,
        a helper process owns the socket: the connection does not touch it until `Connection.handed_back`.
        """

    def owns(self, connection: "Connection") -> bool:
        """Whether the connection is handed off."""
