"""Client quotas: how much users, clients and addresses may do per second, and how long to throttle one over it.

    ClientQuotas   the configured quotas, by entity: a part of the metadata
    QuotaMeter     recent usage, by entity: in memory only

An entity is a user, a client id, both, or an address, each by its name or as the default (None) of its type. Of all
entities that match a client, the most specific applies, in Kafka's order (`_levels`). All connections that belong to
the entity share its quota: those of one client id, for example.

Each entity has a token bucket. It fills at the rate of the quota, up to what a window allows. A request takes its bytes
out once it is served, and may leave the bucket in debt; the client is throttled until the debt is gone. So a client may
use the quota of a whole window at once, and over a longer time no more than its rate.
"""

import math
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ANONYMOUS = "ANONYMOUS"  # the user of a connection without authentication

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

DEBT_S_MAX = 3600  # no debt takes longer than this to clear
# for the time of requests: a client that is silent for longer would lose its group membership
REQUEST_WAIT_MS_MAX = 1000
CONNECTION_WAIT_MS_MAX = 1000  # a connection over the limit is closed after at most this time
BUCKETS_MAX = 10_000  # a client can make up any number of client ids
NAME_LENGTH_MAX = 256  # of a bucket's name: a longer one is replaced by its digest

Entity = tuple[tuple[str, str | None], ...]
"""Types and names, ordered by type; None is the default."""


class ClientQuotas:
    def __init__(self) -> None:
        self.values: dict[Entity, dict[str, float]] = {}  # empty if there are no quotas: checked first, as it is cheap
        self.revision = 0  # increases with every change
        self._holders: Counter[str] = Counter()  # how many entities have a quota, by its key

    def set(self, entity: Entity, key: str, value: float | None) -> None:
        """Sets a quota; None removes it."""
        self.revision += 1
        values = self.values.setdefault(entity, {})
        self._holders[key] += (value is not None) - (key in values)
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
        if not values:
            del self.values[entity]

    def limit(self, key: str, user: str, client_id: str) -> "Limit | None":
        """Returns the limit that applies to a client; None if there is none."""
        if not self._holders[key]:
            return None
        for entity, scope in _levels(user, client_id):
            values = self.values.get(entity)
            if values is not None and key in values:
                return Limit(scope, values[key])
        return None

    def limit_of_address(self, key: str, host: str) -> "Limit | None":
        for name in (host, None):
            values = self.values.get(((IP, name),))
            if values is not None and key in values:
                return Limit(((IP, host),), values[key])
        return None


class Limit(NamedTuple):
    scope: Entity  # the entity that shares the limit
    rate: float  # per second


def _levels(user: str, client_id: str) -> Iterator[tuple[Entity, Entity]]:
    """Yields the entities that match a client, most specific first, each with the entity that shares its quota: the
    default for users applies to each user, not to all together.
    """
    both: Entity = ((CLIENT_ID, client_id), (USER, user))
    this_user: Entity = ((USER, user),)
    this_client: Entity = ((CLIENT_ID, client_id),)
    yield both, both
    yield ((CLIENT_ID, None), (USER, user)), both
    yield this_user, this_user
    yield ((CLIENT_ID, client_id), (USER, None)), both
    yield ((CLIENT_ID, None), (USER, None)), both
    yield ((USER, None),), this_user
    yield this_client, this_client
    yield ((CLIENT_ID, None),), this_client


class Bucket:
    """A token bucket, full at first. Its units are those of the quota: bytes, per cent of a second, connections."""

    __slots__ = ("_at", "_capacity", "left", "rate")

    def __init__(self, rate: float, window_s: float, now: float) -> None:
        self.rate = rate
        self._capacity = rate * window_s
        self._at = now
        self.left = self._capacity

    def fill(self, now: float) -> float:
        """Returns what is in the bucket by now."""
        if now > self._at:
            self.left = min(self._capacity, self.left + (now - self._at) * self.rate)
            self._at = now
        return self.left

    def take(self, amount: float, now: float) -> float:
        """Takes `amount` out, and returns the seconds until the bucket is out of debt."""
        self.left = max(self.fill(now) - amount, -self.rate * DEBT_S_MAX)
        return max(0.0, -self.left / self.rate)

    def is_full(self, now: float) -> bool:
        """Whether the bucket is full, and may be dropped: a new one would be the same."""
        return self.fill(now) >= self._capacity


def _in_short(name: str | None) -> str | None:
    """Shortens a long name to its digest, so that the buckets take a bounded amount of memory."""
    if name is None or len(name) <= NAME_LENGTH_MAX:
        return name
    from hashlib import blake2b  # imported here, for few clients: the import takes 2 ms of a start

    return blake2b(name.encode(errors="surrogatepass"), digest_size=16).hexdigest()


class QuotaMeter:
    """Measures usage, and computes throttle times. Times are seconds of the steady clock."""

    def __init__(self, quotas: ClientQuotas, window_s: float) -> None:
        """A client may use at once what its rate allows in `window_s`."""
        self.quotas = quotas
        self.throttled: Counter[str] = Counter()  # number of throttled requests or connections, by quota
        self._window_s = window_s
        self._buckets: dict[tuple[str, Entity], Bucket] = {}

    def charge(self, key: str, user: str, client_id: str, amount: float, now: float) -> int:
        """Charges a client for `amount`, and returns its throttle time in milliseconds. Less than half a millisecond is
        rounded to 0, and stays in the bucket as debt.
        """
        limit = self.quotas.limit(key, user, client_id)
        if limit is None:
            return 0
        wait_ms = round(self._bucket(key, limit, self._window_s, now).take(amount, now) * 1000)
        self.throttled[key] += wait_ms > 0
        return min(wait_ms, REQUEST_WAIT_MS_MAX) if key == REQUEST_PERCENTAGE else wait_ms

    def at_once(self, key: str, user: str, client_id: str) -> float:
        """Returns how much a client may use with one request."""
        limit = self.quotas.limit(key, user, client_id)
        return limit.rate * self._window_s if limit is not None else math.inf

    def connect(self, host: str, now: float) -> int:
        """Charges an address for a new connection, and returns 0. If its quota is used up, returns the throttle time in
        milliseconds instead, and charges nothing.
        """
        limit = self.quotas.limit_of_address(CONNECTION_CREATION_RATE, host)
        if limit is None:
            return 0
        window_s = max(self._window_s, 1 / limit.rate)  # else the bucket would never hold a whole connection
        bucket = self._bucket(CONNECTION_CREATION_RATE, limit, window_s, now)
        missing = 1 - bucket.fill(now)
        if missing <= 0:
            bucket.take(1, now)
            return 0
        self.throttled[CONNECTION_CREATION_RATE] += 1
        return min(math.ceil(missing / limit.rate * 1000), CONNECTION_WAIT_MS_MAX)

    def _bucket(self, key: str, limit: Limit, window_s: float, now: float) -> Bucket:
        """Returns the bucket of a limit; a new one if there is none, or if the quota has changed, which cancels any
        debt.
        """
        name = key, tuple((kind, _in_short(name)) for kind, name in limit.scope)
        bucket = self._buckets.get(name)
        if bucket is None or bucket.rate != limit.rate:
            if len(self._buckets) >= BUCKETS_MAX:
                self._forget(now)
            bucket = self._buckets[name] = Bucket(limit.rate, window_s, now)
        return bucket

    def _forget(self, now: float) -> None:
        """Drops full buckets; if that is not enough, also the older half, whose entities start again with full ones."""
        kept = {name: bucket for name, bucket in self._buckets.items() if not bucket.is_full(now)}
        if len(kept) > BUCKETS_MAX // 2:
            kept = dict(list(kept.items())[-BUCKETS_MAX // 2 :])
        self._buckets = kept
