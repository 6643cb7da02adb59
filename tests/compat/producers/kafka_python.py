import sys

from compat.producers.talking import obey, settings
from kafka import KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import InvalidProducerEpochError, ProducerFencedError

SECONDS = 60

given = settings()
producer = KafkaProducer(
    bootstrap_servers=given.bootstrap,
    transactional_id=given.id,
    transaction_timeout_ms=given.timeout_ms,
    max_block_ms=SECONDS * 1000,
    reconnect_backoff_max_ms=500,
)


def do(verb: str, *words: str) -> None:
    match verb, words:
        case "init", ():
            producer.init_transactions()
        case "begin", ():
            producer.begin_transaction()
        case "send", (topic, partition, value):
            producer.send(topic, value.encode(), partition=int(partition))
        case "flush", ():
            producer.flush(SECONDS)
        case "offset", (group, topic, partition, offset):
            where = {TopicPartition(topic, int(partition)): OffsetAndMetadata(int(offset), "", -1)}
            producer.send_offsets_to_transaction(where, group)
        case "commit", ():
            producer.commit_transaction()
        case "abort", ():
            producer.abort_transaction()
        case _:
            sys.exit(f"unknown: {verb} {words}")


def is_fenced(error: BaseException | None) -> bool:
    if error is None:
        return False
    return isinstance(error, ProducerFencedError | InvalidProducerEpochError) or is_fenced(error.__cause__)


obey(do, is_fenced)
