"""Client quotas: how much users, clients and addresses may do per second, and how long to throttle one over it.

    ClientQuotas   what was set, by entity: a part of the metadata
    QuotaMeter     what was done of late, by entity: in memory alone

An entity is a user, a client id, both, or an address, each by its name or as the default (None) of its kind. Of all
that fit a client the most exact counts, in Kafka's order (`_levels`); what it allows, all connections share that the
entity means: those of one client id, say.

What an entity may do is a bucket. It fills at the rate of the quota, up to what a window may hold; a request takes its
bytes out, after the fact, and may leave a debt, which is waited off. So a client may do as much at once as a window
allows, and over a longer time no more than its rate.
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

DEBT_S_MAX = 3600  # a debt is waited off by then, whatever it is
REQUEST_WAIT_MS_MAX = 1000  # for the time of requests, at once: who is silent for longer would be put out of its group
CONNECTION_WAIT_MS_MAX = 1000  # a connection that is one too many is closed by then
BUCKETS_MAX = 10_000  # client ids cost nothing to make up
NAME_LENGTH_MAX = 256  # of a bucket: a longer one goes by its digest

Entity = tuple[tuple[str, str | None], ...]
"""Kinds and names, in the order of the kinds; None is the default."""


class ClientQuotas:
    def __init__(self) -> None:
        self.values: dict[Entity, dict[str, float]] = {}  # empty where nobody is held back: the one test that costs
        self.revision = 0  # grows with every change
        self._holders: Counter[str] = Counter()  # how many have a quota, by its key

    def set(self, entity: Entity, key: str, value: float | None) -> None:
        """None takes it back."""
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
        """What counts for a client; None where it may do as it likes."""
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
    scope: Entity  # who shares it
    rate: float  # a second


def _levels(user: str, client_id: str) -> Iterator[tuple[Entity, Entity]]:
    """Which entities fit a client, the most exact first, and who shares what each allows: the default of users is for
    each of them, not for all together.
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
    """Full at first. What is in it is in the units of the quota: bytes, per cent of a second, connections."""

    __slots__ = ("_at", "_capacity", "left", "rate")

    def __init__(self, rate: float, window_s: float, now: float) -> None:
        self.rate = rate
        self._capacity = rate * window_s
        self._at = now
        self.left = self._capacity

    def fill(self, now: float) -> float:
        """What is in it by now."""
        if now > self._at:
            self.left = min(self._capacity, self.left + (now - self._at) * self.rate)
            self._at = now
        return self.left

    def take(self, amount: float, now: float) -> float:
        """The seconds after which nothing is owed any more."""
        self.left = max(self.fill(now) - amount, -self.rate * DEBT_S_MAX)
        return max(0.0, -self.left / self.rate)

    def is_full(self, now: float) -> bool:
        """Then it may be forgotten: a new one is the same."""
        return self.fill(now) >= self._capacity


def _in_short(name: str | None) -> str | None:
    """So that buckets, which are bounded in number, are so in bytes."""
    if name is None or len(name) <= NAME_LENGTH_MAX:
        return name
    from hashlib import blake2b  # for the few who have such names: it takes 2 ms of a start

    return blake2b(name.encode(errors="surrogatepass"), digest_size=16).hexdigest()


class QuotaMeter:
    """Times are seconds of a clock that never jumps."""

    def __init__(self, quotas: ClientQuotas, window_s: float) -> None:
        """A client may do at once what its rate allows in `window_s`."""
        self.quotas = quotas
        self.throttled: Counter[str] = Counter()  # how often somebody had to wait, by quota
        self._window_s = window_s
        self._buckets: dict[tuple[str, Entity], Bucket] = {}

    def charge(self, key: str, user: str, client_id: str, amount: float, now: float) -> int:
        """A client has done so much: the milliseconds that it has to wait now. What is less than half of one is left to
        the next time.
        """
        limit = self.quotas.limit(key, user, client_id)
        if limit is None:
            return 0
        wait_ms = round(self._bucket(key, limit, self._window_s, now).take(amount, now) * 1000)
        self.throttled[key] += wait_ms > 0
        return min(wait_ms, REQUEST_WAIT_MS_MAX) if key == REQUEST_PERCENTAGE else wait_ms

    def at_once(self, key: str, user: str, client_id: str) -> float:
        """How much a client may do with one request."""
        limit = self.quotas.limit(key, user, client_id)
        return limit.rate * self._window_s if limit is not None else math.inf

    def connect(self, host: str, now: float) -> int:
        """An address opens a connection: 0 where it may. Else it has to wait so many milliseconds, and nothing is
        counted.
        """
        limit = self.quotas.limit_of_address(CONNECTION_CREATION_RATE, host)
        if limit is None:
            return 0
        window_s = max(self._window_s, 1 / limit.rate)  # or there would never be room for one
        bucket = self._bucket(CONNECTION_CREATION_RATE, limit, window_s, now)
        missing = 1 - bucket.fill(now)
        if missing <= 0:
            bucket.take(1, now)
            return 0
        self.throttled[CONNECTION_CREATION_RATE] += 1
        return min(math.ceil(missing / limit.rate * 1000), CONNECTION_WAIT_MS_MAX)

    def _bucket(self, key: str, limit: Limit, window_s: float, now: float) -> Bucket:
        """A new one where there is none, or where the quota has changed: what was owed is forgotten then."""
        name = key, tuple((kind, _in_short(name)) for kind, name in limit.scope)
        bucket = self._buckets.get(name)
        if bucket is None or bucket.rate != limit.rate:
            if len(self._buckets) >= BUCKETS_MAX:
                self._forget(now)
            bucket = self._buckets[name] = Bucket(limit.rate, window_s, now)
        return bucket

    def _forget(self, now: float) -> None:
        """Those that say nothing go; and if that is not enough, the older half: they begin anew, and full."""
        kept = {name: bucket for name, bucket in self._buckets.items() if not bucket.is_full(now)}
        if len(kept) > BUCKETS_MAX // 2:
            kept = dict(list(kept.items())[-BUCKETS_MAX // 2 :])
        self._buckets = kept
