"""A client that does nothing but load a broker, as a process of its own: its CPU time is not the broker's.

    python -m bench.programs.load produce|consume BOOTSTRAP TOPIC SIZE SECONDS [ACKS]
                                  [--count N] [--compression lz4] [--keys N]

confluent-kafka, which is C inside; messages are handed over in lists, so that Python is not what is measured. Producing
ends after so many seconds, or before with `--count`; with `--keys` messages have so many different ones, which spreads
them over the partitions. Consuming ends when all was read that was there. Prints one line of JSON: messages, seconds,
cpu (seconds of this process), of the part that counts.
"""

import argparse
import json
import os
import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

IN_QUEUE_MAX = 500_000
AT_A_TIME = 5_000
LETTERS = bytes(ord("A") + byte % 26 for byte in range(256))


def payload(size: int) -> bytes:
    """Random letters, which compress a little: what Kafka's own ProducerPerformance sends."""
    return os.urandom(size).translate(LETTERS)


def produce(options: argparse.Namespace) -> tuple[int, float, float]:
    producer = Producer(
        {
            "bootstrap.servers": options.bootstrap,
            "acks": options.acks,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "compression.type": options.compression,
            "queue.buffering.max.messages": IN_QUEUE_MAX,
            "queue.buffering.max.kbytes": 256 << 10,
        }
    )
    topic, size = options.topic, options.size
    messages = [{"value": payload(size)} for _ in range(min(AT_A_TIME, (5 << 20) // size))]
    for number, message in enumerate(messages if options.keys else ()):
        message["key"] = b"%d" % (number % options.keys)
    producer.produce_batch(topic, messages)
    _flush(producer)
    start, cpu, sent = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - start < options.seconds and sent < options.count:
        if (waiting := len(producer) + len(messages)) > IN_QUEUE_MAX or waiting * size > 200 << 20:
            producer.poll(0.01)
            continue
        sent += producer.produce_batch(topic, messages)
    _flush(producer)
    return sent, time.perf_counter() - start, time.process_time() - cpu


def _flush(producer: Producer) -> None:
    if left := producer.flush(60):
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{left} messages were not acknowledged"))


def consume(options: argparse.Namespace) -> tuple[int, float, float]:
    """Everything that is there, once, from the start to the end; the time begins with the first messages."""
    consumer = Consumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.min.messages": 1_000_000,
            "fetch.queue.backoff.ms": 5,  # by default it rests for a second each time that its queue is full
        }
    )
    numbers = consumer.list_topics(options.topic, 30).topics[options.topic].partitions
    partitions = [TopicPartition(options.topic, number, 0) for number in numbers]
    left = sum(high - low for low, high in map(consumer.get_watermark_offsets, partitions))
    consumer.assign(partitions)
    left -= len(consumer.consume(1, 30))
    start, cpu, count = time.perf_counter(), time.process_time(), left
    while left:
        messages = consumer.consume(min(AT_A_TIME, left), 30)
        if not messages:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        left -= len(messages)
    taken = time.perf_counter() - start, time.process_time() - cpu
    consumer.close()
    return count, *taken


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.programs.load")
    parser.add_argument("what", choices=("produce", "consume"))
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("size", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("acks", nargs="?", default="1")
    parser.add_argument("--count", type=int, default=sys.maxsize)
    parser.add_argument("--compression", default="none")
    parser.add_argument("--keys", type=int, default=0)
    options = parser.parse_args()
    work = produce if options.what == "produce" else consume
    messages, taken, cpu = work(options)
    print(json.dumps({"messages": messages, "seconds": taken, "cpu": cpu}))


if __name__ == "__main__":
    main()
