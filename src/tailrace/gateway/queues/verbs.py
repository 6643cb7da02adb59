"""POST /v1/queues/{group}/{topic}/lease, ack, nack and extend."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tailrace.client.errors import Refused
from tailrace.client.share.acknowledgements import Outcome
from tailrace.gateway.http.bodies import Bodies, Gone
from tailrace.gateway.http.endpoints import Content, Endpoint, Handler
from tailrace.gateway.http.parameters import string
from tailrace.gateway.http.problems import Problem
from tailrace.gateway.http.replies import reply
from tailrace.gateway.http.waits import Waits
from tailrace.gateway.kafka.kafka import Kafka
from tailrace.gateway.queues import requests
from tailrace.gateway.queues.queue import Action, Failed, Leased, Settled, Settling, Waiting
from tailrace.gateway.queues.queues import Name, Queues
from tailrace.gateway.topics.messages import JSON, media_type_of, row_of
from tailrace.gateway.topics.schemas import TOPIC_NAME
from tailrace.protocol.errors import ErrorCode
from tailrace.util.json_messages import to_object

logger = logging.getLogger("tailrace.gateway.queues")

GROUP_LENGTH_MAX = 249
LEASES_MAX = 20_000  # of one queue
ANSWER_S = 20.0  # beyond the time that a request waits, until the queue must have answered
_GROUP = string("group", "The share group. One that does not exist begins with the first message.", GROUP_LENGTH_MAX)
_PROBLEMS = (
    "bad-request", "topic-not-found", "queue-not-found", "request-timeout", "too-large", "unsupported-media-type",
    "too-many-requests", "not-supported", "unavailable",
)  # fmt: skip
_LEASE_TEXT = """\
Each message is leased to one worker at a time. A message whose lease ends comes again, with the next `attempt`. \
With another Kafka than tailrace, a lease is as long as the group's `share.record.lock.duration.ms`."""
_ACK_TEXT = "The messages are done, and never come again. That is on disk when the response comes."
_NACK_TEXT = """\
The messages come again: after `delay_seconds`, or, with 0, when the group's configs say. With `reject` they do not, \
and go to the group's dead-letter topic, if it has one. The gateway logs the `reason`."""
_EXTEND_TEXT = "The leases end `lease_seconds` from now."


class QueueVerbs:
    def __init__(self, kafka: Kafka, queues: Queues, waits: Waits, bodies: Bodies) -> None:
        self._kafka = kafka
        self._queues = queues
        self._waits = waits
        self._bodies = bodies

    def endpoints(self) -> list[Endpoint]:
        return [
            self._endpoint("lease", self._lease, "Lease messages", _LEASE_TEXT, requests.LEASE, requests.LEASED),
            self._endpoint("ack", self._ack, "Finish messages", _ACK_TEXT, requests.ACK, requests.DONE),
            self._endpoint("nack", self._nack, "Give messages back", _NACK_TEXT, requests.NACK, requests.DONE),
            self._endpoint("extend", self._extend, "Extend leases", _EXTEND_TEXT, requests.EXTEND, requests.DONE),
        ]

    def _endpoint(
        self, verb: str, handler: Handler, summary: str, text: str, body: Mapping[str, Any], answer: Mapping[str, Any]
    ) -> Endpoint:
        return Endpoint(
            "POST",
            f"/v1/queues/{{group}}/{{topic}}/{verb}",
            handler,
            summary,
            text,
            answer,
            path_parameters=[_GROUP, TOPIC_NAME],
            bodies={JSON: Content(body)},
            problems=_PROBLEMS if verb == "lease" else (*_PROBLEMS, "lease-expired"),
            tag="queues",
        )

    # Verbs

    async def _lease(self, request: Request, _: dict[str, Any]) -> Response:
        given = await self._read(request, requests.LEASE)
        name = _name_of(request)
        try:
            leased = await self._leased(request, name, given)
        except Refused as error:
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            raise Problem("queue-not-found", f"group {name[0]!r} is no share group: {error}") from None
        return reply({"messages": [_shown(one) for one in leased]})

    async def _ack(self, request: Request, _: dict[str, Any]) -> Response:
        given = await self._read(request, requests.ACK)
        return await self._settle(request, given["leases"], Action(Outcome.ACCEPT))

    async def _nack(self, request: Request, _: dict[str, Any]) -> Response:
        given = await self._read(request, requests.NACK)
        outcome = Outcome.REJECT if given["reject"] else Outcome.RELEASE
        if given["reject"] and given["delay_seconds"]:
            raise Problem("bad-request", "a message that is rejected does not come again: it has no delay_seconds")
        if given["reason"] is not None:
            group, topic = _name_of(request)
            logger.info("%d of %s for %s: %r", len(given["leases"]), topic, group, given["reason"])
        return await self._settle(request, given["leases"], Action(outcome, given["delay_seconds"]))

    async def _extend(self, request: Request, _: dict[str, Any]) -> Response:
        given = await self._read(request, requests.EXTEND)
        return await self._settle(request, given["leases"], Action(Outcome.RENEW, given["lease_seconds"]))

    # Their parts

    async def _read(self, request: Request, schema: Mapping[str, Any]) -> dict[str, Any]:
        async with self._bodies.read(request) as body:
            if media_type_of(request.headers.get("content-type", "")) != JSON:
                raise Problem("unsupported-media-type", f"the body is {JSON}")
            return requests.read(body, schema)

    async def _leased(self, request: Request, name: Name, given: Mapping[str, Any]) -> list[Leased]:
        """Raises Problem, ClientError, and Gone."""
        loop = asyncio.get_running_loop()
        with self._waits.begin(request, given["wait_seconds"] + ANSWER_S) as wait:
            while True:
                queue = await self._queues.get(name)
                if queue.leases >= LEASES_MAX:
                    raise Problem("too-many-requests", f"{LEASES_MAX} messages of this queue are leased")
                now = time.monotonic()
                answer: asyncio.Future[list[Leased]] = loop.create_future()
                until = now + given["wait_seconds"]
                waiting = Waiting(given["max"], given["lease_seconds"] * 1000, now, until, answer)
                if queue.submit(waiting):
                    break
                await asyncio.sleep(0)  # it is closing; its end is about to be noted
                self._queues.forget(name, queue)
            try:
                await wait.until(lambda: _when_done(answer))
            except Gone:
                waiting.is_gone = True
                if answer.done() and not answer.exception():
                    _give_back(queue, answer.result())
                answer.cancel()
                raise
            if answer.done():
                return answer.result()
            waiting.is_gone = True
            answer.cancel()
            queue.wake()
            return []

    async def _settle(self, request: Request, leases: list[str], action: Action) -> Response:
        name = _name_of(request)
        queue = self._queues.find(name)
        if queue is None:  # all of its leases have ended
            await self._kafka.topic(name[1])
            return _settled(Settled(0, [Failed(lease, "unknown") for lease in dict.fromkeys(leases)]))
        if action.outcome is Outcome.RELEASE and action.seconds and not queue.is_tailrace:
            raise Problem("not-supported", "delay_seconds needs tailrace: this cluster has no delays of messages")
        settling = Settling(list(dict.fromkeys(leases)), action, asyncio.get_running_loop().create_future())
        if not queue.submit(settling):
            return _settled(Settled(0, [Failed(lease, "expired") for lease in settling.leases]))
        try:
            return _settled(await asyncio.wait_for(asyncio.shield(settling.answer), ANSWER_S + 20))
        except TimeoutError:
            raise Problem("unavailable", "the cluster has not answered; whether it was done is unknown") from None


async def _when_done(answer: "asyncio.Future[list[Leased]]") -> None:
    await asyncio.wait([answer])


def _give_back(queue: Any, leased: list[Leased]) -> None:
    if leased:
        names = [one.lease for one in leased]
        queue.submit(Settling(names, Action(Outcome.RELEASE), asyncio.get_running_loop().create_future()))


def _name_of(request: Request) -> Name:
    return request.path_params["group"], request.path_params["topic"]


def _shown(leased: Leased) -> dict[str, object]:
    record, at = leased.delivery.record, leased.delivery.at
    names = {"lease": leased.lease, "attempt": leased.delivery.attempt, "expires_ms": leased.expires_ms}
    return {**names, **to_object(row_of(record, at.partition))}


def _settled(settled: Settled) -> Response:
    """Raises Problem if all leases have failed."""
    failed = [one._asdict() for one in settled.failed]
    if not settled.done:
        raise Problem("lease-expired", "no lease is valid any more", further={"done": 0, "failed": failed})
    return reply({"done": settled.done, "failed": failed})
