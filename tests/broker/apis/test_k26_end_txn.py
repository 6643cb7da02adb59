"""EndTxn in each version. What it does is in `tests/broker/transactions`."""

from pathlib import Path

import pytest
from brokers import LocalBroker
from transactions import TransactionalProducer, committed

from tailrace.protocol.errors import ErrorCode


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("version", range(6))
def test_a_transaction_ends_in_every_version(tmp_path: Path, version: int, commit: bool) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        producer = TransactionalProducer(broker, version=0)
        producer.produce(b"a")
        answer = producer.end(commit=commit, version=version)
        assert (answer.error_code, answer.throttle_time_ms) == (0, 0)
        assert (answer.producer_id, answer.producer_epoch) == ((0, 1) if version >= 5 else (-1, -1))
        assert committed(broker) == ([b"a"] if commit else [])


@pytest.mark.parametrize("version", range(6))
def test_other_producers_are_refused(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        producer = TransactionalProducer(broker, version=0)
        fenced = TransactionalProducer(broker, begins=False)
        fenced.identity = producer.identity
        producer.init()
        producer.produce(b"a")
        code = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        refused = fenced.end(commit=True, version=version)
        assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (code, -1, -1)
        fenced.identity = 4711, 0
        assert fenced.end(commit=True, version=version).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        fenced.transactional_id = "unknown"
        assert fenced.end(commit=True, version=version).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert producer.commit().error_code == 0
        assert committed(broker) == [b"a"]
