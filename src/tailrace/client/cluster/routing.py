"""One request about many partitions: split by leader, and repeated at new leaders until all have responded.

All requests are sent before the first response is awaited, so the exchange takes as long as the slowest leader. An
error is raised once all leaders have responded: a caller that then ends a transaction knows that no batch of it is in
flight. A `Question` builds the requests, and reads the responses.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import Leader, TopicPartition
from tailrace.client.errors import ClientError, ConnectionLost, Refused, refusal
from tailrace.client.net.connection import Connection, Pending
from tailrace.client.options import Address
from tailrace.protocol.errors import ErrorCode

T = TypeVar("T")


class Answer(NamedTuple, Generic[T]):
    partition: TopicPartition
    code: int
    value: T
    said: str | None = None


class Question(Protocol[T]):
    response: type[Any]
    versions: tuple[int, int]  # at least, at most

    def request(self, partitions: Sequence[TopicPartition], leaders: dict[TopicPartition, Leader]) -> Any: ...

    def answers(self, response: Any) -> Iterator[Answer[T]]: ...

    def failure(self, answer: Answer[T]) -> ClientError | None:
        """Returns the error for an answer that needs its own; None for the default error."""
        ...


class Exchange(Generic[T]):
    """Sends its requests when it is made, and returns the answers from `finish`. The caller finishes or closes it."""

    def __init__(
        self, cluster: Cluster, question: Question[T], partitions: Iterable[TopicPartition], doing: str
    ) -> None:
        self._cluster = cluster
        self._question = question
        self._retry = cluster.retry(doing)
        self._open = set(partitions)
        self._found: dict[TopicPartition, T] = {}
        self._sent: list[tuple[Connection, Pending[Any], list[TopicPartition]]] = []
        self._trouble: ClientError | None = None  # the last retriable error
        self._failure: ClientError | None = None  # the first error that cannot be retried
        self._send()

    def finish(self) -> dict[TopicPartition, T]:
        """Returns the answers. Raises the first error that cannot be retried, once all leaders of that round have
        responded, and GaveUp when the time for retries is over.
        """
        self._retry.progress()  # the caller's own time does not count
        try:
            self._receive()
            while self._open:
                assert self._trouble is not None
                self._retry.pause(self._trouble)
                self._cluster.refresh({partition.topic for partition in self._open}, self._retry)
                self._send()
                self._receive()
        finally:
            self.close()
        return self._found

    def close(self) -> None:
        for connection, _, _ in self._sent:
            self._cluster.pool.give_back(connection)
        self._sent.clear()

    def _send(self) -> None:
        try:
            for address, led in self._by_leader().items():
                self._send_to(address, led)
        except BaseException:
            self.close()
            raise

    def _by_leader(self) -> dict[Address, dict[TopicPartition, Leader]]:
        grouped: dict[Address, dict[TopicPartition, Leader]] = {}
        for partition in sorted(self._open):
            leader = self._cluster.leader(partition, self._retry)
            if leader is None:
                self._trouble = Refused(str(partition), ErrorCode.LEADER_NOT_AVAILABLE)
            else:
                grouped.setdefault(leader.address, {})[partition] = leader
        return grouped

    def _send_to(self, address: Address, led: dict[TopicPartition, Leader]) -> None:
        at_least, at_most = self._question.versions
        request = self._question.request(list(led), led)
        try:
            connection = self._cluster.take(address, self._retry)
        except ClientError as error:
            self._note(error)
            return
        deadline = self._retry.request_deadline()
        try:
            pending = connection.send(request, self._question.response, deadline, at_least=at_least, at_most=at_most)
        except ClientError as error:
            self._note(error)
            self._cluster.pool.give_back(connection)
        except BaseException:
            self._cluster.pool.give_back(connection)
            raise
        else:
            self._sent.append((connection, pending, list(led)))

    def _receive(self) -> None:
        while self._sent:
            connection, pending, asked = self._sent[-1]
            try:
                response = connection.receive(pending, self._retry.request_deadline())
                for answer in self._question.answers(response):
                    self._take(answer)
                self._check_complete(connection, asked)
            except ClientError as error:
                self._note(error)
            self._sent.pop()
            self._cluster.pool.give_back(connection)
        if self._failure is not None:
            raise self._failure

    def _take(self, answer: Answer[T]) -> None:
        if answer.partition not in self._open:
            return  # not asked for, or already answered
        failure = self._question.failure(answer)
        if failure is None and answer.code:
            failure = refusal(f"{self._retry.doing}, {answer.partition}", answer.code, answer.said)
        if failure is None:
            self._open.discard(answer.partition)
            self._found[answer.partition] = answer.value
        else:
            self._note(failure)

    def _note(self, error: ClientError) -> None:
        if error.is_passing:
            self._trouble = error
        else:
            self._failure = self._failure or error

    def _check_complete(self, connection: Connection, asked: Sequence[TopicPartition]) -> None:
        unanswered = [partition for partition in asked if partition in self._open]
        if unanswered and self._trouble is None:
            self._trouble = ConnectionLost(connection.name, f"its response does not mention {unanswered[0]}")


def ask_leaders(
    cluster: Cluster, question: Question[T], partitions: Iterable[TopicPartition], doing: str
) -> dict[TopicPartition, T]:
    return Exchange(cluster, question, partitions, doing).finish()
