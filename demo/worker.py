"""A member of the demo's group, as a process that can be killed.

    python -m demo.worker BOOTSTRAP

Works on parcels and commits twice a second, after the work. Says what happens as lines of JSON: the partitions it has,
each message it has worked on, and what is committed.
"""

import json
import logging
import sys
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

TOPIC, GROUP = "parcels", "packers"
COMMIT_SECONDS = 0.5

_silence = logging.getLogger("demo.worker")
_silence.addHandler(logging.NullHandler())
_silence.propagate = False


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def main() -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": sys.argv[1],
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,  # so soon it is missed when it is killed
            "heartbeat.interval.ms": 300,
        },
        logger=_silence,
    )

    def owned(_: Consumer, partitions: list[TopicPartition]) -> None:
        say(has=sorted(partition.partition for partition in partitions))

    def gives_up(consumer: Consumer, _: list[TopicPartition]) -> None:
        commit(consumer)  # so that the next member need not do it again
        say(has=[])

    consumer.subscribe([TOPIC], on_assign=owned, on_revoke=gives_up)
    commit_at = time.monotonic() + COMMIT_SECONDS
    while True:
        for message in consumer.consume(500, 0.05):
            if message.error() is None:
                say(done=[message.partition(), message.offset()])
        if time.monotonic() >= commit_at:
            commit_at += COMMIT_SECONDS
            commit(consumer)


def commit(consumer: Consumer) -> None:
    try:
        places = consumer.commit(asynchronous=False) or []
    except KafkaException:  # nothing new, or the group is about to share out the work anew
        return
    say(committed=[[place.partition, place.offset] for place in places])


if __name__ == "__main__":
    main()
