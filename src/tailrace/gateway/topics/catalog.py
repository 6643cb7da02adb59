"""GET /v1/topics and /v1/topics/{topic}: which topics there are, and how far they reach."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tailrace.client.cluster.metadata import Topic
from tailrace.client.offsets import readable_bounds
from tailrace.client.options import Isolation
from tailrace.gateway.http.endpoints import Endpoint
from tailrace.gateway.http.replies import reply
from tailrace.gateway.kafka.kafka import Kafka
from tailrace.gateway.topics.schemas import AFTER, LIST_MAX, TOPIC, TOPIC_NAME, TOPICS


class Catalog:
    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "GET",
                "/v1/topics",
                self._list,
                "List topics",
                "In the order of their names.",
                TOPICS,
                parameters=[LIST_MAX, AFTER],
                problems=["bad-request", "too-many-requests", "unavailable"],
                tag="topics",
            ),
            Endpoint(
                "GET",
                "/v1/topics/{topic}",
                self._show,
                "Show a topic",
                "Its partitions, with their first and last offsets.",
                TOPIC,
                path_parameters=[TOPIC_NAME],
                problems=["bad-request", "topic-not-found", "too-many-requests", "unavailable"],
                tag="topics",
            ),
        ]

    async def _list(self, _: Request, values: dict[str, Any]) -> Response:
        topics = await self._kafka.threads.run(self._kafka.cluster.all_topics)
        names = sorted(name for name in topics if name > values["after"])
        shown = names[: values["max"]]
        return reply(
            {
                "topics": [_summary(topics[name]) for name in shown],
                "next": shown[-1] if len(shown) < len(names) else None,
            }
        )

    async def _show(self, request: Request, _: dict[str, Any]) -> Response:
        name = request.path_params["topic"]
        cluster = self._kafka.cluster

        def look() -> tuple[Topic, dict[int, tuple[int, int]]]:
            topic = cluster.topic(name, fresh=True)
            bounds = readable_bounds(cluster, topic.partitions, Isolation.READ_COMMITTED)
            return topic, {partition.partition: found for partition, found in bounds.items()}

        topic, bounds = await self._kafka.threads.run(look)
        partitions = [
            dict(zip(("partition", "start", "end"), (index, *bounds.get(index, (None, None))), strict=True))
            for index in sorted(topic.leaders)
        ]
        return reply({"name": name, "internal": topic.is_internal, "partitions": partitions})


def _summary(topic: Topic) -> dict[str, object]:
    return {"name": topic.name, "partitions": len(topic.leaders), "internal": topic.is_internal}
