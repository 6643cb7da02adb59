"""GET /v1/topics/{topic}/messages: a page of messages from any position on, which may wait for the first one."""

from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import TopicNotFound
from tailrace.client.options import Isolation
from tailrace.gateway.http.endpoints import Endpoint
from tailrace.gateway.http.parameters import Parameter, choice, integer
from tailrace.gateway.http.replies import reply
from tailrace.gateway.http.waits import Waits
from tailrace.gateway.kafka.kafka import Kafka, View
from tailrace.gateway.kafka.reader import Page
from tailrace.gateway.topics.messages import row_of
from tailrace.gateway.topics.positions import GRAMMAR, Position, position_of
from tailrace.gateway.topics.schemas import PAGE, PARTITION_MAX, TOPIC_NAME
from tailrace.util.json_messages import to_object

MESSAGES_MAX = 1000
WAIT_S_MAX = 60
_ISOLATION = {"committed": Isolation.READ_COMMITTED, "uncommitted": Isolation.READ_UNCOMMITTED}
_FROM_LENGTH_MAX = 64


def _from(given: str) -> Position:
    if len(given) > _FROM_LENGTH_MAX:
        raise ValueError(f"it is {GRAMMAR}")
    return position_of(given, datetime.now(UTC))


_PARAMETERS = (
    integer("partition", "The partition to read.", 0, PARTITION_MAX, 0),
    Parameter(
        "from",
        f"The first message to return: {GRAMMAR}. Times without a zone are UTC.",
        {"type": "string", "maxLength": _FROM_LENGTH_MAX, "default": "earliest", "examples": ["earliest", "42", "-2h"]},
        _from,
        position_of("earliest", datetime.now(UTC)),
    ),
    integer("max", "How many messages to return at most.", 1, MESSAGES_MAX, 100),
    integer("wait_seconds", "For how long to wait for a message, if there is none.", 0, WAIT_S_MAX, 0),
    choice(
        "isolation", "Whether messages of open and aborted transactions are left out.", list(_ISOLATION), "committed"
    ),
)
_TEXT = """\
The response has the messages of one partition in order, up to `max` or about a megabyte. `next_offset` continues \
where it ends. Reading commits nothing, and disturbs no consumer group."""


class Consuming:
    def __init__(self, kafka: Kafka, waits: Waits) -> None:
        self._kafka = kafka
        self._waits = waits

    def endpoint(self) -> Endpoint:
        return Endpoint(
            "GET",
            "/v1/topics/{topic}/messages",
            self._read,
            "Read messages",
            _TEXT,
            PAGE,
            path_parameters=[TOPIC_NAME],
            parameters=_PARAMETERS,
            problems=["bad-request", "topic-not-found", "offset-out-of-range", "too-many-requests", "unavailable"],
            tag="topics",
        )

    async def _read(self, request: Request, values: dict[str, Any]) -> Response:
        topic = await self._kafka.topic(request.path_params["topic"])
        partition = TopicPartition(topic.name, values["partition"])
        if partition.partition not in topic.leaders:
            raise TopicNotFound(*partition)
        view = self._kafka.view(_ISOLATION[values["isolation"]])
        start: Position = values["from"]
        offset = start.offset
        if offset is None:
            assert start.time is not None
            offset = await view.reader.position(partition, start.time)
        page = await view.reader.page(partition, offset, values["max"])
        if not page.records and values["wait_seconds"]:
            page = await self._waited(request, view, partition, page, values)
        return _reply(page, partition.partition)

    async def _waited(
        self, request: Request, view: View, partition: TopicPartition, page: Page, values: dict[str, Any]
    ) -> Page:
        """Returns the first page that has messages, or the last one of the wait."""
        with self._waits.begin(request, values["wait_seconds"]) as wait:
            while not page.records and not wait.is_over:
                if page.next_offset >= page.end:
                    offset = page.next_offset
                    await wait.until(lambda offset=offset: view.tail.wait(partition, offset))  # type: ignore[misc]
                page = await view.reader.page(partition, page.next_offset, values["max"])
        return page


def _reply(page: Page, partition: int) -> Response:
    messages = [to_object(row_of(record, partition)) for record in page.records]
    return reply({"messages": messages, "next_offset": page.next_offset, "end": max(page.end, page.next_offset)})
