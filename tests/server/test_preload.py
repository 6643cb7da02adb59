"""What a start leaves out is imported soon after it, and all of it."""

import subprocess
import sys

PROGRAM = """
import asyncio, sys, tempfile
from tailrace.broker.apis.registry import APIS
from tailrace.server.node import Node
from tailrace.server.settings import Listen

LATER = {"tailrace.broker." + name for name in ("background.compaction", "groups.coordinator", "groups.classic.group")}

async def main():
    with tempfile.TemporaryDirectory() as data:
        node = Node(data, [Listen("127.0.0.1", 0)])
        await node.start()
        print(len(LATER & set(sys.modules)))
        while len(APIS.made) < len(APIS):
            await asyncio.sleep(0.01)
        print(LATER < set(sys.modules))
        own = {name for name in sys.modules if name.startswith("tailrace")}
        await asyncio.sleep(0.3)  # a heartbeat, at least
        await node.stop()
        print({name for name in sys.modules if name.startswith("tailrace")} - own)

asyncio.run(main())
"""


def test_what_a_start_does_not_need_is_imported_after_it_and_nothing_later() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.split() == ["0", "True", "set()"]


STOPPED = """
import asyncio, sys, tempfile
from tailrace.broker.apis.registry import APIS
from tailrace.server.node import Node
from tailrace.server.settings import Listen

async def main():
    with tempfile.TemporaryDirectory() as data:
        node = Node(data, [Listen("127.0.0.1", 0)])
        await node.start()
        await node.stop()
        made = len(APIS.made)
        await asyncio.sleep(0.3)
        print(len(APIS.made) - made)

asyncio.run(main())
"""


def test_nothing_is_imported_after_a_stop() -> None:
    done = subprocess.run([sys.executable, "-c", STOPPED], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.split() == ["0"]
