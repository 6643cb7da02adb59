"""A broker of dramatiq's whose queues are topics of Kafka's, by the HTTP gateway of tailrace. Needs no Kafka client.

    import dramatiq
    from dramatiq_http import HttpBroker

    dramatiq.set_broker(HttpBroker("http://127.0.0.1:9080", group="mail"))

    @dramatiq.actor
    def send_mail(address): ...

    send_mail.send("a@example.com")    # and `dramatiq module` runs it

A message is in the topic `dramatiq.QUEUE`. A worker leases it, extends the lease while it works, and acknowledges it.
If the worker dies, the message comes again when the lease ends. One that must wait (a delay, a retry) is given back
with that delay, which the broker keeps. One that dramatiq gives up is rejected, and goes to the dead-letter topic of
the group, if there is one. Each lease is an attempt, and a group has five: `tailrace queue set` changes that.
"""

import json
import time
import urllib.request
from collections import deque
from collections.abc import Iterable
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote

from dramatiq import Broker, Consumer, Message, MessageProxy, Middleware
from dramatiq.common import current_millis
from dramatiq.errors import QueueNotFound

DELAY_S_MAX = 604_800
LEASES_MAX = 1000  # in one request


class HttpBroker(Broker):
    """Errors are those of urllib: dramatiq logs them, and tries again."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:9080",
        *,
        group: str = "dramatiq",
        token: str | None = None,
        lease_s: int = 60,
        middleware: list[Middleware] | None = None,
    ) -> None:
        super().__init__(middleware)
        self._url = url
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._group, self._lease_s = group, lease_s

    def post(self, path: str, body: bytes, content_type: str, **headers: str) -> Any:
        headers = {**self._headers, "Content-Type": content_type, **headers}
        request = urllib.request.Request(f"{self._url}/v1/{path}", body, headers, method="POST")  # noqa: S310 - yours
        with urllib.request.urlopen(request, timeout=90) as response:  # noqa: S310
            return json.load(response)

    def declare_queue(self, queue_name: str) -> None:
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues[queue_name] = None
            self.emit_after("declare_queue", queue_name)

    def enqueue(self, message: Message, *, delay: int | None = None) -> Message:
        if message.queue_name not in self.queues:
            raise QueueNotFound(message.queue_name)
        if delay is not None:
            message = message.copy(options={"eta": current_millis() + delay})
        self.emit_before("enqueue", message, delay)
        self.post(f"topics/{topic_of(message.queue_name)}", message.encode(), "application/octet-stream")
        self.emit_after("enqueue", message, delay)
        return message

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 30_000) -> Consumer:
        path = f"queues/{quote(self._group, safe='')}/{topic_of(queue_name)}"
        return HttpConsumer(self, path, min(prefetch, LEASES_MAX), timeout / 1000, self._lease_s)


class Leased(MessageProxy):
    def __init__(self, message: Message, lease: str) -> None:
        super().__init__(message)
        self.lease = lease


class HttpConsumer(Consumer):
    def __init__(self, broker: HttpBroker, path: str, prefetch: int, timeout_s: float, lease_s: int) -> None:
        self._broker, self._path = broker, path
        self._prefetch, self._timeout_s, self._lease_s = prefetch, timeout_s, lease_s
        self._fetched: deque[Leased] = deque()
        self._held: dict[str, None] = {}  # leases
        self._extended = time.monotonic()

    def __next__(self) -> MessageProxy | None:
        self._extend()
        if not self._fetched and len(self._held) < self._prefetch:
            self._fetch(self._prefetch - len(self._held))
        elif not self._fetched:
            time.sleep(min(0.05, self._timeout_s))
        return self._fetched.popleft() if self._fetched else None

    def ack(self, message: MessageProxy) -> None:
        self._end("ack", message)

    def nack(self, message: MessageProxy) -> None:
        self._end("nack", message, reject=True, reason=repr(message._exception)[:1000])

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        for message in messages:
            self._end("nack", message)

    def close(self) -> None:
        self.requeue(self._fetched)
        self._fetched.clear()

    def _fetch(self, most: int) -> None:
        wait_s = max(1, min(60, round(self._timeout_s)))
        try:
            leased = self._post("lease", max=most, wait_seconds=wait_s, lease_seconds=self._lease_s)["messages"]
        except HTTPError as error:
            if error.code != 404:  # nothing was ever sent to this queue
                raise
            return time.sleep(wait_s)
        for one in leased:
            self._held[one["lease"]] = None
            message = Leased(Message.decode(one["value"].encode()), one["lease"])
            if (left_ms := message.options.pop("eta", 0) - current_millis()) > 0:
                self._end("nack", message, delay_seconds=min(DELAY_S_MAX, -(-left_ms // 1000)))
            else:
                self._fetched.append(message)

    def _extend(self) -> None:
        if self._held and time.monotonic() - self._extended > self._lease_s / 3:
            self._extended = time.monotonic()
            self._post("extend", leases=list(self._held), lease_seconds=self._lease_s)

    def _end(self, verb: str, message: MessageProxy, **more: object) -> None:
        self._held.pop(message.lease, None)
        self._post(verb, leases=[message.lease], **more)

    def _post(self, verb: str, **body: object) -> Any:
        try:
            return self._broker.post(f"{self._path}/{verb}", json.dumps(body).encode(), "application/json")
        except HTTPError as error:
            if error.code != 409:  # the leases have ended: the messages come again
                raise


def topic_of(queue_name: str) -> str:
    return quote(f"dramatiq.{queue_name}", safe="")
