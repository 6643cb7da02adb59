import sys

from compat.producers.talking import obey, settings
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

SECONDS = 60
FENCED = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)

given = settings()
producer = Producer(
    {
        "bootstrap.servers": given.bootstrap,
        "transactional.id": given.id,
        "transaction.timeout.ms": given.timeout_ms,
        "reconnect.backoff.max.ms": 500,
        "metadata.recovery.strategy": "none",  # else offsets hang after a restart of the broker: librdkafka issue 5511
        "log_level": 0,
    }
)


def do(verb: str, *words: str) -> None:
    match verb, words:
        case "init", ():
            producer.init_transactions(SECONDS)
        case "begin", ():
            producer.begin_transaction()
        case "send", (topic, partition, value):
            producer.produce(topic, value.encode(), partition=int(partition))
        case "flush", ():
            assert producer.flush(SECONDS) == 0, "not everything was acknowledged in time"
        case "offset", (group, topic, partition, offset):
            consumer = Consumer({"bootstrap.servers": given.bootstrap, "group.id": group})
            offsets = [TopicPartition(topic, int(partition), int(offset))]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), SECONDS)
            consumer.close()
        case "commit", ():
            producer.commit_transaction(SECONDS)
        case "abort", ():
            producer.abort_transaction(SECONDS)
        case _:
            sys.exit(f"unknown: {verb} {words}")


obey(do, lambda error: isinstance(error, KafkaException) and error.args[0].code() in FENCED)
