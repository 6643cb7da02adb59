"""Producers commit and abort transactions over several partitions and a group's offset, in any order: they fence each
other, are too slow, and repeat requests; the broker is killed, restarted, and loses its power. Whatever the order:

    a transaction whose commit was acknowledged counts, in all of its partitions, in order, and with its offset
    one that was aborted, timed out or fenced counts nowhere
    one whose commit was not acknowledged counts everywhere or nowhere
    a replay of the transaction log gives the state of the coordinator
    in the end consumers of committed records reach the end of every partition

`make crash` tries more orders (EXAMPLES=…).
"""

import os
from itertools import count
from typing import Any

from brokers import LocalBroker
from group_requests import offsets
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from logs import DATA, memory_files
from transactions import TransactionalProducer, Waiting, check_replay, committed, last_stable_offset, run_a_job

from tailrace.protocol.errors import ErrorCode

EXAMPLES = int(os.environ.get("EXAMPLES", "60"))

PARTITIONS = 3
TIMEOUT_MS = 60_000
END_VERSIONS = {0: 4, 2: 5}
FENCED = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
}

clients = st.sampled_from(["old", "old twin", "new", "new twin"])
partitions = st.integers(0, PARTITIONS - 1)


class Work:
    """What a client has written in its transaction."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.values: dict[int, list[bytes]] = {}
        self.offset: int | None = None

    def is_for(self, group: str) -> bool:
        """Whether it commits an offset of the group."""
        return self.offset is not None and self.group == group


class Client:
    """A producer; its twin has the same transactional id, and one of them is fenced."""

    def __init__(self, broker: LocalBroker, name: str) -> None:
        version = 0 if name.startswith("old") else 2
        self.group = name.split()[0]
        self.producer = TransactionalProducer(broker, self.group, version=version, timeout_ms=TIMEOUT_MS, begins=False)
        self.work: Work | None = None  # None: it has to begin anew


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.files = memory_files()
        self.broker = LocalBroker(DATA, files=self.files)
        self.broker.create_topic(partitions=PARTITIONS)
        self.clients = {name: Client(self.broker, name) for name in ("old", "old twin", "new", "new twin")}
        self.numbers = count()
        self.counting: list[Work] = []
        self.undecided: list[Work] = []  # their commit was not acknowledged: all or nothing

    def begin(self, name: str) -> Client:
        """Returns a client with a producer id."""
        client = self.clients[name]
        if client.work is None:
            assert client.producer.init().error_code == ErrorCode.NONE
            client.work = Work(client.group)
        return client

    def refused(self, client: Client, code: int) -> bool:
        """Whether a request was refused, so that the client has to begin anew."""
        assert code == 0 or code in FENCED, code
        if code:
            client.work = None
        return bool(code)

    @rule(name=clients)
    def a_client_begins_anew(self, name: str) -> None:
        self.clients[name].work = None
        self.begin(name)

    @rule(name=clients, partition=partitions, records=st.integers(1, 3))
    def a_client_produces(self, name: str, partition: int, records: int) -> None:
        client = self.begin(name)
        values = [b"%d" % next(self.numbers) for _ in range(records)]
        if client.producer.version == 0 and self.refused(client, client.producer.add(partition)):
            return
        answer = client.producer.produce(
            *values, partition=partition, version=11 if client.producer.version == 0 else 12
        )
        if not self.refused(client, answer.error_code):
            assert client.work is not None
            client.work.values.setdefault(partition, []).extend(values)

    @rule(name=clients)
    def a_client_commits_an_offset(self, name: str) -> None:
        client, offset = self.begin(name), next(self.numbers)
        producer = client.producer
        if producer.version == 0 and self.refused(client, producer.add_offsets(client.group)):
            return
        (answer,) = self.broker.ask(
            producer.offsets_request({("orders", 0): offset}, client.group), {0: 3, 2: 5}[producer.version]
        ).topics
        if not self.refused(client, answer.partitions[0].error_code):
            assert client.work is not None
            client.work.offset = offset

    @rule(name=clients, commit=st.booleans(), repeated=st.booleans())
    def a_client_ends_its_transaction(self, name: str, commit: bool, repeated: bool) -> None:
        client = self.begin(name)
        work, producer = client.work, client.producer
        assert work is not None
        if producer.version == 0 and not work.values and work.offset is None:
            return  # such clients do not end what they have not begun
        request = producer.end_request(commit=commit)
        answer = producer.end(commit=commit)
        if repeated and not answer.error_code:
            assert self.broker.ask(request, END_VERSIONS[producer.version]) == answer
        if not self.refused(client, answer.error_code):
            client.work = Work(client.group)
            if commit:
                self.counting.append(work)

    @rule(name=clients, commit=st.booleans(), steps=st.integers(0, 8), has_power=st.booleans(), seed=st.integers(0, 99))
    def the_broker_dies_while_a_transaction_is_ended(
        self, name: str, commit: bool, steps: int, has_power: bool, seed: int
    ) -> None:
        client = self.begin(name)
        work, producer = client.work, client.producer
        assert work is not None
        self.broker.hold_jobs = True
        ending = Waiting(self.broker, producer.end_request(commit=commit), END_VERSIONS[producer.version])
        for _ in range(steps):
            run_a_job(self.broker)
        is_done = ending.is_answered and not ending.answer.error_code
        if not has_power:
            self.loses_power(seed)
        else:
            self.broker.hold_jobs = False
            self.broker.kill()
        client.work = None
        if commit:
            (self.counting if is_done else self.undecided).append(work)

    @rule(name=clients, partition=partitions, ends=st.booleans(), steps=st.integers(0, 4), seed=st.integers(0, 99))
    def the_power_fails_while_a_client_produces(
        self, name: str, partition: int, ends: bool, steps: int, seed: int
    ) -> None:
        """`ends`: in its next transaction, while the record that completes the one before may not be on disk."""
        if ends:
            self.a_client_produces(name, partition, 1)
        client = self.begin(name)
        producer, work = client.producer, client.work
        assert work is not None
        if producer.version == 0 and self.refused(client, producer.add(partition)):
            return
        self.broker.hold_jobs = True
        if ends and producer.version == 2 and self.commits_without_completion(producer):
            self.counting.append(work)
        version = 11 if producer.version == 0 else 12
        self.broker.begin(producer.produce_request(b"never", partition=partition), version)
        for _ in range(steps):
            run_a_job(self.broker)
        self.loses_power(seed)
        client.work = None  # it does not know what became of its batch

    def commits_without_completion(self, producer: TransactionalProducer) -> bool:
        """Returns whether the commit was acknowledged."""
        ending = Waiting(self.broker, producer.end_request(commit=True), END_VERSIONS[producer.version])
        while not ending.is_answered:
            assert run_a_job(self.broker)
        producer.goes_on(ending.answer)
        return not ending.answer.error_code

    def loses_power(self, seed: int) -> None:
        self.files = self.files.power_cut(seed, tears=False)
        before, self.broker = self.broker, LocalBroker(DATA, files=self.files)
        self.broker.now_ms = before.now_ms
        for client in self.clients.values():
            client.producer.broker = self.broker
        self.broker.tick(1)

    @rule(how=st.sampled_from(["kill", "restart"]))
    def the_broker_restarts(self, how: str) -> None:
        getattr(self.broker, how)()
        self.broker.tick(1)

    @rule(ms=st.sampled_from([1, TIMEOUT_MS // 2, TIMEOUT_MS + 1]))
    def time_passes(self, ms: int) -> None:
        self.broker.tick(ms)

    # What is true after each step

    def found(self) -> list[list[bytes]]:
        return [committed(self.broker, partition) for partition in range(PARTITIONS)]

    def is_at_end(self, partition: int) -> bool:
        """Whether nothing is open in the partition."""
        log = self.broker.partition(index=partition).log
        return log is None or last_stable_offset(self.broker, partition) == log.end_offset

    def settle(self, found: list[list[bytes]], at_end: list[bool], group_offsets: dict[str, Any]) -> None:
        """Decides for each transaction whose commit was not acknowledged what became of it, once that can be seen."""
        for work in list(self.undecided):
            if not all(at_end[partition] for partition in work.values):
                continue
            counts = {value in found[partition] for partition, values in work.values.items() for value in values}
            assert len(counts) <= 1, "a part of a transaction counts"
            if True in counts or (not counts and work.offset == group_offsets[work.group]):
                self.counting.append(work)
            self.undecided.remove(work)

    @invariant()
    def what_counts_is_what_was_committed(self) -> None:
        self.broker.tick(1)
        found = [committed(self.broker, partition) for partition in range(PARTITIONS)]
        at_end = [self.is_at_end(partition) for partition in range(PARTITIONS)]
        group_offsets = {group: offsets(self.broker, group).get(("orders", 0)) for group in ("old", "new")}
        self.settle(found, at_end, group_offsets)
        for partition, values in enumerate(found):
            certain, possible = (
                {value for work in works for value in work.values.get(partition, ())}
                for works in (self.counting, self.counting + self.undecided)
            )
            assert b"never" not in values, "its transaction was never committed"
            assert values == sorted(set(values), key=int), "in order, and once"
            assert set(values) <= possible
            assert certain <= set(values) or not at_end[partition]
        for group, offset in group_offsets.items():
            if not any(work.group == group for work in self.undecided):
                offsets_counting = [work.offset or 0 for work in self.counting if work.is_for(group)]
                assert offset == max(offsets_counting, default=None)

    @invariant()
    def a_replay_of_the_log_gives_the_state(self) -> None:
        check_replay(self.broker)

    def teardown(self) -> None:
        self.broker.tick(TIMEOUT_MS + 1)
        for partition in range(PARTITIONS):
            assert self.is_at_end(partition)
        self.what_counts_is_what_was_committed()


Transactions.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=25, deadline=None)
TestTransactions = Transactions.TestCase
