"""Members of groups, thousands of them, each with a connection of its own, as one process.

    python -m bench.programs.members HOST PORT GROUPS MEMBERS HEARTBEAT_S

Says `stable SECONDS` when every member of every group has its assignment, from the first join on. From then on members
do nothing but send heartbeats. A line on standard input is answered: `leave` lets one member of the last group go, and
another line `stable SECONDS` says how long it takes until the others are stable again; `end` ends it all with a line of
JSON: heartbeats, the p50 and p99 of their round trips in ms, and how many were refused.
"""

import asyncio
import json
import sys
import time
from typing import TypeVar

from bench.harness.measure import percentile
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frame import decode_response, encode_request
from tailrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tailrace.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tailrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

Response = TypeVar("Response")

SUBSCRIPTION = bytes(100)  # about what clients say
_AT_ONCE = 200  # connections that are being made


class Members:
    def __init__(self, host: str, port: int, groups: int, members: int, heartbeat_s: float) -> None:
        self.host, self.port = host, port
        self.heartbeat_s = heartbeat_s
        self.times: list[float] = []
        self.refused = 0
        self.unstable = groups * members
        self.stable = asyncio.Event()
        self.connecting = asyncio.Semaphore(_AT_ONCE)
        self.all = [Member(self, f"group-{group}", members) for group in range(groups) for _ in range(members)]

    def is_stable(self) -> None:
        self.unstable -= 1
        if not self.unstable:
            self.stable.set()

    async def run(self) -> None:
        start = time.perf_counter()
        tasks = [asyncio.create_task(member.live()) for member in self.all]
        await self._say_stable(start)
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        while (line := (await lines.readline()).decode().strip()) == "leave":
            self.stable.clear()
            leaver = self.all.pop()
            self.unstable = sum(member.group_id == leaver.group_id for member in self.all)
            start = time.perf_counter()
            await leaver.leave()
            await self._say_stable(start)
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
        self._has_left = False
        self._one_at_a_time = asyncio.Lock()

    async def live(self) -> None:
        async with self._members.connecting:
            self._reader, self._writer = await asyncio.open_connection(self._members.host, self._members.port)
        await self._join()
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


def main() -> None:
    host, port, groups, members, heartbeat_s = sys.argv[1:]
    run = Members(host, int(port), int(groups), int(members), float(heartbeat_s))
    asyncio.run(run.run())


if __name__ == "__main__":
    main()
