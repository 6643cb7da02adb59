"""The quota for creating and deleting partitions, `controller_mutation_rate`, in Kafka's two ways.

newer versions   a request over the quota is refused with THROTTLING_QUOTA_EXCEEDED; clients retry by themselves when
                 the throttle time is over
older versions   the request is carried out, and then the client is throttled
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Call
from tailrace.broker.core.errors import Refused
from tailrace.broker.quotas.client_quotas import ANONYMOUS, CONTROLLER_MUTATION_RATE
from tailrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


class Mutations:
    """The mutations of one request. `throttle_time_ms` is the throttle time for its response."""

    def __init__(self, call: Call, broker: "Broker", *, refused_from: int) -> None:
        """`refused_from` is the first version whose clients understand THROTTLING_QUOTA_EXCEEDED."""
        self.throttle_time_ms = 0
        self._is_strict = call.version >= refused_from
        self._client_id = call.client_id or ""
        self._now = call.steady_ms / 1000
        self._meter = broker.quotas

    def add(self, partitions: int) -> None:
        """Charges the client for `partitions`. Raises Refused if the client must wait first."""
        if not self._meter.quotas.values:
            return
        if self._is_strict and (wait_ms := self._charge(0)):
            self.throttle_time_ms = wait_ms
            code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
            raise Refused(code, f"{CONTROLLER_MUTATION_RATE} is exceeded: retry after {wait_ms} ms")
        wait_ms = self._charge(partitions)
        if not self._is_strict:
            self.throttle_time_ms = wait_ms

    def _charge(self, partitions: int) -> int:
        return self._meter.charge(CONTROLLER_MUTATION_RATE, ANONYMOUS, self._client_id, partitions, self._now)
