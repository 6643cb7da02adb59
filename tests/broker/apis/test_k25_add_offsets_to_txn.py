"""AddOffsetsToTxn: the committed offsets of a group join a transaction."""

from pathlib import Path

import pytest
from brokers import LocalBroker
from transactions import COPIER, TransactionalProducer, known

from tailrace.broker.groups.records import partition_of
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest


def request(producer: TransactionalProducer, group_id: str = "billing") -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=COPIER,
        producer_id=producer.identity[0],
        producer_epoch=producer.identity[1],
        group_id=group_id,
    )


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("partitions", [1, 7])
def test_the_partition_of_the_group_is_added(tmp_path: Path, version: int, partitions: int) -> None:
    with LocalBroker(tmp_path, {"offsets.topic.num.partitions": str(partitions)}) as broker:
        producer = TransactionalProducer(broker, version=0)
        assert broker.ask(request(producer), version).error_code == ErrorCode.NONE
        assert known(broker).partitions == {("__consumer_offsets", partition_of("billing", partitions))}
        assert producer.commit().error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(5))
def test_others_are_refused(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        producer = TransactionalProducer(broker)
        assert broker.ask(request(producer, ""), version).error_code == ErrorCode.INVALID_GROUP_ID
        wanted = request(producer)
        producer.init()
        code = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert broker.ask(wanted, version).error_code == code
        wanted.producer_id = 4711
        assert broker.ask(wanted, version).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
