"""The states of share partitions in tests: in memory, and as a replay of the state log gives them."""

from typing import NamedTuple

from brokers import LocalBroker

from tailrace.broker.core.topics import SHARE_STATE_TOPIC
from tailrace.broker.queues.names import ShareKey
from tailrace.broker.queues.partition.settings import PartitionSettings
from tailrace.broker.queues.partition.share_partition import SharePartition
from tailrace.broker.queues.partition.states import StateRange, merged
from tailrace.broker.queues.state_log.loaded_states import LoadedStates
from tailrace.broker.queues.state_log.log import ReadStateJob
from tailrace.log.log import Log


class Persisted(NamedTuple):
    """What is persisted of a state."""

    start: int
    ranges: list[StateRange]


def persisted(state: SharePartition | None) -> Persisted | None:
    if state is None:
        return None
    ranges = [one for update in state.snapshot() for one in update.ranges]
    return Persisted(state.start_offset, merged(ranges))


def in_memory(broker: LocalBroker) -> dict[ShareKey, Persisted | None]:
    return {queue.key: persisted(queue.state) for queue in broker.broker.queues.all()}


def state_log(broker: LocalBroker) -> Log | None:
    return broker.broker.queues.log.log if SHARE_STATE_TOPIC in broker.broker.metadata.topics else None


def replayed(broker: LocalBroker) -> dict[ShareKey, Persisted | None]:
    """What a start would find, if everything that was written were flushed."""
    log = state_log(broker)
    if log is None:
        return {}
    broker.run_flushes()
    loaded = LoadedStates(lambda _: PartitionSettings(), broker.now_ms, broker.steady_ms)
    job = ReadStateJob(log, loaded.replay)
    job.run()
    assert job.error is None, job.error
    return {key: persisted(one.state) for key, one in loaded.states.items()}


def check_replay(broker: LocalBroker) -> None:
    """Checks that a replay of the log gives the states in memory."""
    assert replayed(broker) == in_memory(broker)
