"""Consume, transform, produce with confluent-kafka: each message of the input is in the output once, whatever crashes.

    python copy_confluent.py --bootstrap 127.0.0.1:9092 --input orders --output invoices

The messages that are written and the offsets that were read are committed in one transaction. If the program or the
broker dies, neither counts, and the next start begins where the last commit was. Consumers of the output must read
with `isolation.level=read_committed`, which is librdkafka's default.

Several of these may share the input: start each with an `--instance` of its own, and keep that name when you start it
again, so that the broker aborts at once what the instance before it has left open.
"""

import argparse

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

MESSAGES_MAX = 500  # in a transaction


def transform(value: bytes | None) -> bytes | None:
    """Yours."""
    return value and value.upper()


def copy(consumer: Consumer, producer: Producer, messages: list[Message], output: str) -> None:
    """Writes the messages, and commits them together with the offsets after them."""
    offsets: dict[tuple[str, int], int] = {}
    producer.begin_transaction()
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
        producer.produce(output, transform(message.value()), message.key())  # one key, one partition: in order
        offsets[message.topic(), message.partition()] = message.offset() + 1
    positions = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
    producer.commit_transaction()


def rewind(consumer: Consumer) -> None:
    """Goes back to the committed offsets."""
    for position in consumer.committed(consumer.assignment()):
        if position.offset < 0:  # none is committed
            position.offset = OFFSET_BEGINNING
        consumer.seek(position)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True, metavar="ADDRESS")
    parser.add_argument("--input", required=True, metavar="TOPIC")
    parser.add_argument("--output", required=True, metavar="TOPIC")
    parser.add_argument("--instance", default="1", help="another one for each program that shares the input")
    given = parser.parse_args()
    name = f"copy-{given.input}-{given.output}"
    producer = Producer(
        {
            "bootstrap.servers": given.bootstrap,
            "transactional.id": f"{name}-{given.instance}",
            # With "rebootstrap", the default, committing offsets hangs for ever once all brokers have been away
            # (librdkafka 2.10 to 2.16 at least, its issue 5511).
            "metadata.recovery.strategy": "none",
        }
    )
    consumer = Consumer(
        {
            "bootstrap.servers": given.bootstrap,
            "group.id": name,
            "group.instance.id": given.instance,  # a restart is given its partitions back at once
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,  # the transaction commits them
            "isolation.level": "read_committed",
        }
    )
    producer.init_transactions()  # aborts what an earlier run has left open, and fences it should it still run
    consumer.subscribe([given.input])
    while True:
        messages = consumer.consume(MESSAGES_MAX, timeout=0.5)
        if not messages:
            continue
        try:
            copy(consumer, producer, messages, given.output)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():  # fenced, for example: another instance has this name
                raise
            producer.abort_transaction()  # partitions have moved to another instance, for example
            rewind(consumer)


if __name__ == "__main__":
    main()
