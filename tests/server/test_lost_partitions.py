"""A broker process on a directory that has lost a partition, seen by clients and by the one who starts it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition


def produced(address: str, topic: str, count: int) -> list[int]:
    """The offsets of the acknowledged messages."""
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": address, "message.timeout.ms": 3000})
    for number in range(count):
        producer.produce(
            topic, b"%d" % number, partition=0, on_delivery=lambda error, sent: error or offsets.append(sent.offset())
        )
        producer.flush()
    return offsets
