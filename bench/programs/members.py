"""Members of groups, thousands of them, each with a connection of its own, as one process.

    python -m bench.programs.members HOST PORT GROUPS MEMBERS HEARTBEAT_S PROTOCOL

PROTOCOL is classic or consumer (KIP-848); members of the latter read the topic `live`. Says `stable SECONDS` when every
member of every group has its assignment, from the first join on. From then on members do nothing but send heartbeats. A
line on standard input is answered: `leave` lets one member of the last group go, a second `stable SECONDS` says how
long it takes until the others are stable again, and `moved COUNT` how many partitions they have lost (consumer only);
`end` ends it all with a line of JSON: heartbeats, the p50 and p99 of their round trips in ms, and the number refused.
"""

import asyncio
import json
import random
import sys
import time
import uuid
from typing import TypeVar

from bench.harness.measure import percentile
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frame import decode_response, encode_request
from tailrace.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tailrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tailrace.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tailrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

Response = TypeVar("Response")

SUBSCRIPTION = bytes(100)  # about what clients say
TOPIC = "live"
_QUIET_HEARTBEATS = 2  # that change nothing: until then a member is not counted as stable
_AT_ONCE = 200  # connections that are being made


class Members:
    def __init__(
        self, host: str, port: int, groups: int, members: int, heartbeat_s: float, kind: "type[Member]"
    ) -> None:
        self.host, self.port = host, port
        self.heartbeat_s = heartbeat_s
        self.times: list[float] = []
        self.refused = 0
        self.unstable = groups * members
        self.stable = asyncio.Event()
        self.quiet: set[Member] = set()
        self.former_epoch = 0  # of the members before one has left
        self.connecting = asyncio.Semaphore(_AT_ONCE)
        self.all = [kind(self, f"group-{group}", members) for group in range(groups) for _ in range(members)]

    def is_stable(self) -> None:
        self.unstable -= 1
        if not self.unstable:
            self.stable.set()

    def is_quiet(self, member: "Member") -> None:
        if member not in self.quiet:
            self.quiet.add(member)
            self.is_stable()

    def _owned(self) -> "dict[Member, set[int]]":
        return {member: set(member.owned) for member in self.all}

    async def run(self) -> None:
        start = time.perf_counter()
        tasks = [asyncio.create_task(member.live()) for member in self.all]
        await self._say_stable(start)
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        while (line := (await lines.readline()).decode().strip()) == "leave":
            self.stable.clear()
            self.quiet.clear()
            leaver = self.all.pop()
            before = self._owned()
            self.former_epoch = max(member.epoch for member in self.all)
            self.unstable = sum(member.group_id == leaver.group_id for member in self.all)
            start = time.perf_counter()
            await leaver.leave()
            await self._say_stable(start)
            print("moved", sum(len(before[member] - now) for member, now in self._owned().items()), flush=True)
        assert line in ("end", ""), line
        for task in tasks:
            task.cancel()
        done = {"heartbeats": len(self.times), "refused": self.refused}
        times = {f"p{percent}": 1e3 * percentile(self.times, percent) for percent in (50, 99)} if self.times else {}
        print(json.dumps(done | times), flush=True)

    async def _say_stable(self, start: float) -> None:
        await self.stable.wait()
        self.times.clear()
        print("stable", time.perf_counter() - start, flush=True)


class Member:
    def __init__(self, members: Members, group_id: str, size: int) -> None:
        self.group_id = group_id
        self._members = members
        self._size = size  # of the group
        self._id = ""
        self._generation = -1
        self.owned: set[int] = set()  # of members of the consumer protocol
        self._has_left = False
        self._one_at_a_time = asyncio.Lock()

    @property
    def epoch(self) -> int:
        return self._generation

    async def live(self) -> None:
        await self._connect()
        await self._join()
        await self._spread()
        while True:
            await asyncio.sleep(self._members.heartbeat_s)
            if self._has_left:
                return
            start = time.perf_counter()
            request = HeartbeatRequest(group_id=self.group_id, generation_id=self._generation, member_id=self._id)
            code = (await self._ask(request, HeartbeatResponse, 3)).error_code
            self._members.times.append(time.perf_counter() - start)
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                await self._join()
            elif code:
                self._members.refused += 1

    async def _spread(self) -> None:
        """Members that joined at the same moment do not go on in step: heartbeats come evenly, in both protocols."""
        await asyncio.sleep(random.uniform(0, self._members.heartbeat_s))

    async def _connect(self) -> None:
        async with self._members.connecting:
            self._reader, self._writer = await asyncio.open_connection(self._members.host, self._members.port)

    async def leave(self) -> None:
        self._has_left = True
        gone = LeaveGroupRequest(group_id=self.group_id, members=[MemberIdentity(member_id=self._id)])
        await self._ask(gone, LeaveGroupResponse, 3)

    async def _join(self) -> None:
        """Until it has an assignment, and everyone that is to come is there."""
        while True:
            joined = await self._ask(self._joining(), JoinGroupResponse, 5)
            self._id = joined.member_id
            if joined.error_code:
                continue
            self._generation = joined.generation_id
            request = SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self._generation,
                member_id=self._id,
                assignments=[
                    SyncGroupRequestAssignment(member_id=member.member_id, assignment=bytes(50))
                    for member in joined.members
                ],
            )
            synced = await self._ask(request, SyncGroupResponse, 3)
            if not synced.error_code:
                self._members.is_stable()
                return

    def _joining(self) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id=self._id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        )

    async def _ask(self, request: object, response: type[Response], version: int) -> Response:
        async with self._one_at_a_time:
            self._writer.write(encode_request(request, version, 0, "bench"))
            size = int.from_bytes(await self._reader.readexactly(4))
            return decode_response(response, version, await self._reader.readexactly(size))[1]


class ConsumerMember(Member):
    """A member of the consumer protocol. It is stable when a heartbeat says nothing new for the first time, at the
    epoch that the broker has for all.
    """

    def __init__(self, members: Members, group_id: str, size: int) -> None:
        super().__init__(members, group_id, size)
        self._id = uuid.uuid4().hex
        self._generation = 0
        self.owned: set[int] = set()

    async def live(self) -> None:
        await self._connect()
        await self._beat()
        await self._spread()
        quiet = 0
        while not self._has_left:
            await asyncio.sleep(self._members.heartbeat_s)
            if self._has_left:
                return
            epoch, start = self._generation, time.perf_counter()
            told = await self._beat()
            self._members.times.append(time.perf_counter() - start)
            is_quiet = told is None and epoch == self._generation
            quiet = quiet + 1 if is_quiet else 0
            if quiet >= _QUIET_HEARTBEATS and self._generation > self._members.former_epoch:
                self._members.is_quiet(self)

    async def leave(self) -> None:
        self._has_left = True
        self._generation = -1
        await self._ask(self._request(), ConsumerGroupHeartbeatResponse, 1)

    async def _beat(self) -> Assignment | None:
        """Sends a heartbeat, and another one at once if that has changed what it owns, as clients do."""
        answer = await self._ask(self._request(), ConsumerGroupHeartbeatResponse, 1)
        if answer.error_code:
            self._members.refused += 1
            return None
        self._generation = answer.member_epoch
        if answer.assignment is None:
            return None
        self._topics = answer.assignment.topic_partitions
        self.owned = {index for topic in self._topics for index in topic.partitions}
        acknowledged = await self._ask(self._request(self._topics), ConsumerGroupHeartbeatResponse, 1)
        self._generation = acknowledged.member_epoch or self._generation
        if acknowledged.assignment is not None:
            self._topics = acknowledged.assignment.topic_partitions
            self.owned = {index for topic in self._topics for index in topic.partitions}
        return answer.assignment

    def _request(self, owned: list[TopicPartitions] | None = None) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self._id, member_epoch=self._generation, topic_partitions=owned
        )
        if self._generation == 0:
            request.rebalance_timeout_ms = 60_000
            request.subscribed_topic_names = [TOPIC]
            request.topic_partitions = []
        return request


KINDS: dict[str, type[Member]] = {"classic": Member, "consumer": ConsumerMember}


def main() -> None:
    host, port, groups, members, heartbeat_s, protocol = sys.argv[1:]
    run = Members(host, int(port), int(groups), int(members), float(heartbeat_s), KINDS[protocol])
    asyncio.run(run.run())


if __name__ == "__main__":
    main()
