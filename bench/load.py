"""A client that does nothing but load a broker, as a process of its own: its CPU time is not the broker's.

    python -m bench.load produce|consume BOOTSTRAP TOPIC SIZE SECONDS [ACKS]

confluent-kafka, which is C inside; messages are handed over in lists, so that Python is not what is measured. Prints
one line of JSON: messages, seconds, cpu (seconds of this process), of the part that counts.
"""

import json
import os
import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

IN_QUEUE_MAX = 500_000
AT_A_TIME = 5_000


def produce(bootstrap: str, topic: str, size: int, seconds: float, acks: str) -> tuple[int, float, float]:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": IN_QUEUE_MAX,
            "queue.buffering.max.kbytes": 256 << 10,
        }
    )
    messages = [{"value": os.urandom(size)} for _ in range(AT_A_TIME)]
    producer.produce_batch(topic, messages)
    producer.flush()
    start, cpu, sent = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - start < seconds:
        if len(producer) + AT_A_TIME > IN_QUEUE_MAX or (len(producer) + AT_A_TIME) * size > 200 << 20:
            producer.poll(0.01)
            continue
        sent += producer.produce_batch(topic, messages)
    producer.flush()
    return sent, time.perf_counter() - start, time.process_time() - cpu


def consume(bootstrap: str, topic: str, size: int, seconds: float, acks: str) -> tuple[int, float, float]:
    """Everything that is there, once, from the start to the end; the time begins with the first messages."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.min.messages": 1_000_000,
        }
    )
    partition = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(partition)
    consumer.assign([partition])
    first = consumer.consume(1, 30)[0].offset()
    start, cpu, last = time.perf_counter(), time.process_time(), first
    while last < end - 1:
        messages = consumer.consume(min(AT_A_TIME, end - 1 - last), 30)
        if not messages:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        last = messages[-1].offset()
    taken = time.perf_counter() - start, time.process_time() - cpu
    consumer.close()
    return last - first, *taken


def main() -> None:
    what, bootstrap, topic, size, seconds, *acks = sys.argv[1:]
    work = produce if what == "produce" else consume
    messages, taken, cpu = work(bootstrap, topic, int(size), float(seconds), acks[0] if acks else "1")
    print(json.dumps({"messages": messages, "seconds": taken, "cpu": cpu}))


if __name__ == "__main__":
    main()
