import sys
import threading
import time

from compat.workers.talking import settings, tell, told
from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer

OUTCOMES = {"accept": AcknowledgeType.ACCEPT, "reject": AcknowledgeType.REJECT, "release": AcknowledgeType.RELEASE}

given = settings()
ending = threading.Event()


def work(number: int) -> None:
    consumer = ShareConsumer(
        {
            "bootstrap.servers": given.bootstrap,
            "group.id": given.group,
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": 5,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
    consumer.subscribe([given.topic])
    tell("joined", worker=number)
    while not ending.is_set():
        try:
            found = [message for message in consumer.poll(0.2) if message.error() is None]
        except KafkaException as error:
            tell("refused", text=str(error))
            time.sleep(0.1)
            continue
        for message in found:
            attempt = message.delivery_count()
            what = told(message.value(), attempt)
            if what.hold_s:
                tell("holds", partition=message.partition(), offset=message.offset())
                time.sleep(what.hold_s)
            place = {"partition": message.partition(), "offset": message.offset(), "attempt": attempt}
            tell("handled", worker=number, outcome=what.outcome, **place)
            consumer.acknowledge(message, OUTCOMES[what.outcome])
        if found:
            commit(consumer)
    consumer.close()


def commit(consumer: ShareConsumer) -> None:
    try:
        for refused in consumer.commit_sync(10).values():
            if refused:
                tell("refused", text=str(refused))
    except KafkaException as error:
        tell("refused", text=str(error))


workers = [threading.Thread(target=work, args=(number,)) for number in range(given.workers)]
for worker in workers:
    worker.start()
for line in sys.stdin:
    if line.strip() == "leave":
        break
ending.set()
for worker in workers:
    worker.join()
tell("left")
