"""Records for later: how late a member of a share group gets them, beyond their time.

    python -m bench.programs.delayed HOST PORT RATE SECONDS DELAY_MS

Sends RATE records a second, in batches of 10 ms, each with a header x-delay-ms, to the topic `delayed`, which it makes.
A member of a share group fetches and accepts them. Prints a line of JSON: by how many ms each was late, in order.
"""

import json
import sys
import threading
import time
import uuid

from bench.harness.raw_connection import RawConnection
from tailrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tailrace.protocol.messages.share_acknowledge import ACCEPT, AcknowledgementBatch
from tailrace.protocol.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest, ShareFetchResponse
from tailrace.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tailrace.records.batch import split
from tailrace.records.record import Record, decode_records, encode_batch

TOPIC = "delayed"
STEP_S = 0.01


def create(connection: RawConnection) -> None:
    configs = [CreatableTopicConfig(name="tailrace.delay.headers", value="true")]
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, configs=configs)
    created = connection.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CreateTopicsResponse, 7)
    assert created.topics[0].error_code == 0, created


def produce(connection: RawConnection, rate: int, seconds: float, delay_ms: int) -> None:
    headers = (("x-delay-ms", b"%d" % delay_ms),)
    begun = time.perf_counter()
    for step in range(int(seconds / STEP_S)):
        time.sleep(max(0.0, begun + step * STEP_S - time.perf_counter()))
        now = time.time_ns() // 1_000_000
        records = encode_batch([Record(n, now, None, bytes(100), headers) for n in range(int(rate * STEP_S))])
        data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=records)])
        answer = connection.ask(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data]), ProduceResponse, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0, answer


class Consumer:
    def __init__(self, connection: RawConnection) -> None:
        self._connection = connection
        self._member = str(uuid.uuid4())
        self._epoch = 0
        self._topic_id = self._join()
        self._acks: list[AcknowledgementBatch] = []

    def _join(self) -> bytes:
        epoch, names = 0, [TOPIC]
        while True:
            request = ShareGroupHeartbeatRequest(
                group_id="bench", member_id=self._member, member_epoch=epoch, subscribed_topic_names=names
            )
            answer = self._connection.ask(request, ShareGroupHeartbeatResponse, 1)
            assert answer.error_code == 0, answer
            epoch = answer.member_epoch
            if answer.assignment is not None and answer.assignment.topic_partitions:
                return answer.assignment.topic_partitions[0].topic_id
            time.sleep(0.1)

    def fetch(self) -> list[tuple[int, int]]:
        """Returns the timestamps of records, and when they came."""
        partition = FetchPartition(partition_index=0, acknowledgement_batches=self._acks)
        request = ShareFetchRequest(
            group_id="bench", member_id=self._member, share_session_epoch=self._epoch, max_wait_ms=500, min_bytes=1,
            max_bytes=1 << 20, max_records=500, batch_size=500,
            topics=[FetchTopic(topic_id=self._topic_id, partitions=[partition])],
        )  # fmt: skip
        answer = self._connection.ask(request, ShareFetchResponse, 2)
        now = time.time_ns() // 1_000_000
        assert answer.error_code == 0, answer
        self._epoch += 1
        self._acks = []
        found = []
        for one in (partition for topic in answer.responses for partition in topic.partitions):
            assert one.error_code == one.acknowledge_error_code == 0, one
            for acquired in one.acquired_records:
                first, last = acquired.first_offset, acquired.last_offset
                self._acks.append(
                    AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[ACCEPT])
                )
            found += [(timestamp, now) for timestamp in _timestamps(bytes(one.records or b""), self._acks)]
        return found


def _timestamps(data: bytes, acquired: list[AcknowledgementBatch]) -> list[int]:
    offsets = {offset for one in acquired for offset in range(one.first_offset, one.last_offset + 1)}
    return [
        record.timestamp
        for position, _ in split(data)
        for record in decode_records(data, position)
        if record.offset in offsets
    ]


def main() -> None:
    host, port, rate, seconds, delay_ms = sys.argv[1], *map(int, sys.argv[2:])
    producing, consuming = RawConnection(host, port), RawConnection(host, port)
    create(producing)
    consumer = Consumer(consuming)
    consumer.fetch()  # begins at the end
    thread = threading.Thread(target=produce, args=(producing, rate, seconds, delay_ms))
    thread.start()
    late: list[int] = []
    wanted = rate * seconds
    while len(late) < wanted:
        late += [came - timestamp - delay_ms for timestamp, came in consumer.fetch()]
    thread.join()
    print(json.dumps(late))


if __name__ == "__main__":
    main()
