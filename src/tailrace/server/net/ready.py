"""Connections whose responses have become ready: all are sent together, at the end of the turn or of a flush."""

from asyncio import AbstractEventLoop
from typing import Protocol


class Client(Protocol):
    def answer(self) -> None:
        """Sends the responses that are ready."""


class ReadyConnections:
    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._clients: list[Client] = []
        self._is_held = False

    def add(self, client: Client) -> None:
        """Schedules sending the client's responses, together with others that become ready by then."""
        if not self._clients and not self._is_held:
            self._loop.call_soon(self.answer_all)
        self._clients.append(client)

    def hold(self) -> None:
        """Suspends the schedule: the caller calls `answer_all` itself, after adding clients."""
        self._is_held = True

    def answer_all(self) -> int:
        """Returns the number of connections."""
        self._is_held = False
        clients, self._clients = dict.fromkeys(self._clients), []
        for client in clients:
            client.answer()
        return len(clients)
