from compat.members.talking import Delivered, Words, settings, tell
from confluent_kafka import Consumer, KafkaException, TopicPartition

ASSIGNORS = {"range": "range", "cooperative": "cooperative-sticky"}

given = settings()
words = Words()
delivered = Delivered()
consumer = Consumer(
    {
        "bootstrap.servers": given.bootstrap,
        "group.id": given.group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "group.protocol": given.protocol,
        "max.poll.interval.ms": given.poll_ms,
        "topic.metadata.refresh.interval.ms": given.metadata_ms,
        "reconnect.backoff.max.ms": 500,
    }
    | (
        {}
        if given.protocol == "consumer"
        else {
            "partition.assignment.strategy": ASSIGNORS[given.assignor],
            "session.timeout.ms": given.session_ms,
            "heartbeat.interval.ms": given.heartbeat_ms,
        }
    )
    | ({"group.instance.id": given.instance} if given.instance else {})
)
consumer.subscribe(
    [given.pattern] if given.pattern else list(given.topics),
    on_assign=lambda _, partitions: delivered.assigned(partitions),
    on_revoke=lambda _, partitions: delivered.taken(partitions),
    on_lost=lambda _, partitions: delivered.taken(partitions, how="lost"),
)


def commit() -> None:
    try:
        if delivered.next:
            offsets = [
                TopicPartition(topic, partition, offset) for (topic, partition), offset in delivered.next.items()
            ]
            for each in consumer.commit(offsets=offsets, asynchronous=False):
                if each.error:
                    raise KafkaException(each.error)
    except KafkaException as error:
        tell("refused", text=str(error))
    else:
        delivered.committed()


while (word := words.next()) != "leave":
    if word == "commit":
        commit()
    message = consumer.poll(0.05)
    if message is not None and not message.error():
        delivered.message(message.topic(), message.partition(), message.offset(), message.value())
tell("leaving")
consumer.close()
tell("left")
