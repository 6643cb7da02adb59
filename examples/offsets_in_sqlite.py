"""Keep the offsets of a consumer in SQLite, beside its results: each message counts once, whatever crashes.

    python offsets_in_sqlite.py --bootstrap 127.0.0.1:9092 --input orders --output totals

Results and offsets are written in one transaction of the database, so that both are there or neither is. The consumer
begins where the database says, not where the broker does. `--output` is the table of the results.

Several of these may share the input and the database, each with an `--instance` of its own: the broker gives each some
of the partitions. One that was replaced without knowing it finds that an offset has moved, and ends without having
written anything.
"""

import argparse
import sqlite3

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

MESSAGES_MAX = 500  # in a transaction

Place = tuple[str, int]  # topic, partition


class Overtaken(Exception):
    """Another consumer has stored an offset of this partition."""


def open_database(path: str, output: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=60)
    with database:
        database.execute(f'CREATE TABLE IF NOT EXISTS "{output}" (id INTEGER PRIMARY KEY, key BLOB, value BLOB)')
        database.execute(
            "CREATE TABLE IF NOT EXISTS offsets (topic TEXT, part INTEGER, next INTEGER, PRIMARY KEY (topic, part))"
        )
    return database


def position_in(database: sqlite3.Connection, place: Place) -> int:
    """The offset of the next message that has no result yet."""
    with database:
        database.execute("INSERT INTO offsets VALUES (?, ?, 0) ON CONFLICT DO NOTHING", place)
        row = database.execute("SELECT next FROM offsets WHERE topic = ? AND part = ?", place).fetchone()
    return int(row[0])


def store(database: sqlite3.Connection, output: str, positions: dict[Place, int], messages: list[Message]) -> None:
    """Writes the results of the messages, and the offsets after them. `positions` are where the consumer was."""
    after: dict[Place, int] = {}
    with database:  # one transaction
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            insert = f'INSERT INTO "{output}" (key, value) VALUES (?, ?)'  # noqa: S608 (the user's own table)
            database.execute(insert, (message.key(), message.value()))
            after[message.topic(), message.partition()] = message.offset() + 1
        for place, offset in after.items():
            update = "UPDATE offsets SET next = ? WHERE topic = ? AND part = ? AND next = ?"
            if database.execute(update, (offset, *place, positions[place])).rowcount != 1:
                raise Overtaken(place)
    positions.update(after)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True, metavar="ADDRESS")
    parser.add_argument("--input", required=True, metavar="TOPIC")
    parser.add_argument("--output", required=True, metavar="TABLE")
    parser.add_argument("--database", default="offsets.db", metavar="FILE")
    parser.add_argument("--instance", default="1", help="another one for each program that shares the input")
    given = parser.parse_args()
    database = open_database(given.database, given.output)
    positions: dict[Place, int] = {}

    def begin(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            each.offset = positions[each.topic, each.partition] = position_in(database, (each.topic, each.partition))
        consumer.assign(partitions)

    consumer = Consumer(
        {
            "bootstrap.servers": given.bootstrap,
            "group.id": f"{given.input}-to-{given.output}",
            "group.instance.id": given.instance,  # a restart is given its partitions back at once
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([given.input], on_assign=begin, on_revoke=lambda *_: positions.clear())
    while True:
        messages = consumer.consume(MESSAGES_MAX, timeout=0.5)
        if messages:
            store(database, given.output, positions, messages)
            consumer.commit(asynchronous=True)  # for `tailrace lag`; nothing begins there


if __name__ == "__main__":
    main()
