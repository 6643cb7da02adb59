import time

from compat.members.talking import Delivered, Words, settings, tell
from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaConnectionError, KafkaError

ASSIGNORS = {"range": RangePartitionAssignor, "cooperative": CooperativeStickyAssignor}

given = settings()
words = Words()
delivered = Delivered()
consumer = KafkaConsumer(
    bootstrap_servers=given.bootstrap,
    group_id=given.group,
    group_instance_id=given.instance,
    enable_auto_commit=False,
    auto_offset_reset="earliest",
    partition_assignment_strategy=[ASSIGNORS[given.assignor]],
    session_timeout_ms=given.session_ms,
    heartbeat_interval_ms=given.heartbeat_ms,
    max_poll_interval_ms=given.poll_ms,
    metadata_max_age_ms=given.metadata_ms,
    reconnect_backoff_max_ms=500,
)


class Listener(ConsumerRebalanceListener):
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        delivered.assigned(assigned, generation=consumer.group_metadata().generation_id)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        delivered.taken(revoked)

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        delivered.taken(lost, how="lost")


consumer.subscribe(topics=given.topics or (), pattern=given.pattern, listener=Listener())


def commit() -> None:
    offsets = {TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in delivered.next.items()}
    try:
        if offsets:
            consumer.commit(offsets)
    except KafkaError as error:
        tell("refused", text=repr(error))
    else:
        delivered.committed()


while (word := words.next()) != "leave":
    if word == "commit":
        commit()
    try:
        found = consumer.poll(timeout_ms=200)
    except KafkaConnectionError:  # what others keep to themselves, while they try again
        time.sleep(0.05)
        continue
    if consumer._coordinator._join_task is not None:  # 3.0.12 forgets a join that lasts longer than a poll, at times
        consumer._coordinator.rejoin_needed = True
    for records in found.values():
        for record in records:
            delivered.message(record.topic, record.partition, record.offset, record.value)
tell("leaving")
consumer.close()
tell("left")
