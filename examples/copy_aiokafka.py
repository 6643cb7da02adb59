"""Consume, transform, produce with aiokafka: each message of the input is in the output once, whatever crashes.

    python copy_aiokafka.py --bootstrap 127.0.0.1:9092 --input orders --output invoices

The messages that are written and the offsets that were read are committed in one transaction. If the program or the
broker dies, neither counts, and the next start begins where the last commit was. Consumers of the output must read
with `isolation_level="read_committed"`, which is not aiokafka's default.

aiokafka commits the offsets of a transaction without the generation of the group, so that a member that was replaced
could commit once more. Therefore this program reads all partitions by itself. A second one with the same input and
output fences the first, which ends.
"""

import argparse
import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

MESSAGES_MAX = 500  # in a transaction


def transform(value: bytes | None) -> bytes | None:
    """Yours."""
    return value and value.upper()


async def copy(consumer: AIOKafkaConsumer, producer: AIOKafkaProducer, output: str, group: str) -> None:
    """Writes the next messages, and commits them together with the offsets after them."""
    found = await consumer.getmany(timeout_ms=500, max_records=MESSAGES_MAX)
    if not found:
        return
    async with producer.transaction():  # commits at its end, aborts on an exception
        for messages in found.values():
            for message in messages:
                await producer.send(output, transform(message.value), message.key)  # one key, one partition: in order
        offsets = {partition: messages[-1].offset + 1 for partition, messages in found.items()}
        await producer.send_offsets_to_transaction(offsets, group)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True, metavar="ADDRESS")
    parser.add_argument("--input", required=True, metavar="TOPIC")
    parser.add_argument("--output", required=True, metavar="TOPIC")
    given = parser.parse_args()
    name = f"copy-{given.input}-{given.output}"
    producer = AIOKafkaProducer(bootstrap_servers=given.bootstrap, transactional_id=name)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=given.bootstrap,
        group_id=name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,  # the transaction commits them
        isolation_level="read_committed",
    )
    # First the producer: that aborts what an earlier run has left open, so that the committed offsets are final.
    async with producer, consumer:
        partitions = await producer.partitions_for(given.input)
        consumer.assign([TopicPartition(given.input, partition) for partition in partitions])
        while True:
            await copy(consumer, producer, given.output, name)


if __name__ == "__main__":
    asyncio.run(main())
