"""Act one: a log that loses nothing. A writer is killed, a write is torn, a bit is flipped; the log says what it has.

Everything happens in a temporary directory, through the same code and commands that a user has.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from tailrace.log.config import LogConfig
from tailrace.log.directory import DataDirectory
from tailrace.log.files import OperatingSystemFiles
from tailrace.log.names import TopicPartition
from tailrace.records.record import Record, encode_batch

ORDERS = TopicPartition("orders", 0)
CONFIG = LogConfig(segment_bytes=1 << 20)
console = Console(highlight=False, width=100, record=True)


def run() -> None:
    console.print("[bold]Act one: a log that loses nothing[/bold]")
    with tempfile.TemporaryDirectory(prefix="tailrace-demo-") as directory:
        data = Path(directory) / "data"
        promised = kill_a_writer(data)
        tear_the_tail(data, open_again(data, promised))
        flip_a_bit(data)


def open_log(data: Path) -> DataDirectory:
    return DataDirectory(OperatingSystemFiles(), str(data), CONFIG)


def now_ms() -> int:
    return int(time.time() * 1000)


def write(data: str) -> None:
    """The writer: appends orders, flushes now and then, says how many are safe. It is never stopped, only killed."""
    directory = open_log(Path(data))
    log = directory.create(ORDERS)
    while True:
        end = int(log.end_offset)
        orders = [Record(end + n, now_ms(), b"order-%d" % (end + n), b'{"amount": %d}' % n) for n in range(100)]
        log.append(encode_batch(orders, base_offset=end), now_ms())
        if end % 1000 == 0:
            log.flush()
            os.write(1, b"%d\n" % log.high_watermark)


def kill_a_writer(data: Path) -> int:
    step("A writer appends orders as fast as it can. After a second it is killed with kill -9.")
    writer = subprocess.Popen([sys.executable, "-m", "demo.act_one", str(data)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    writer.stdout.readline()
    time.sleep(1)
    writer.kill()
    promised = int(writer.stdout.read().split(b"\n")[-2])
    writer.wait()
    writer.stdout.close()
    console.print(f"  It had been told that [bold]{promised:,}[/bold] orders were on disk.")
    return promised


def open_again(data: Path, promised: int) -> int:
    step("The log is opened again.")
    started = time.perf_counter()
    directory = open_log(data)
    took = time.perf_counter() - started
    log, report = directory.logs[ORDERS], directory.reports[ORDERS]
    console.print(
        f"  Recovery looked at {report.scanned_bytes / 1e6:.1f} MB in {took * 1000:.0f} ms. The log has "
        f"[bold]{log.end_offset:,}[/bold] orders: the {promised:,} that were promised, and "
        f"{log.end_offset - promised:,} that the page cache still had."
    )
    directory.close(now_ms())
    return int(log.end_offset)


def tear_the_tail(data: Path, end: int) -> None:
    step("A power cut tears the last write: 100 bytes are missing, and there is no clean stop.")
    # The epoch is 1: it rose with the unclean start.
    batch = encode_batch([Record(end, now_ms(), b"half", b"an order" * 50)], base_offset=end, leader_epoch=1)
    with max((data / str(ORDERS)).glob("*.log")).open("ab") as file:
        file.write(batch[:-100])
    (data / ".kafka_cleanshutdown").unlink()
    tailrace(data, "log", "verify")
    open_log(data).close(now_ms())


def flip_a_bit(data: Path) -> None:
    step("A year later the disk flips one bit, somewhere in the first segment.")
    first = min((data / str(ORDERS)).glob("*.log"))
    with first.open("r+b") as file:
        file.seek(500_000)
        byte = file.read(1)[0]
        file.seek(500_000)
        file.write(bytes([byte ^ 4]))
    tailrace(data, "log", "verify")
    step("One batch of a hundred orders cannot be trusted, by name. All others can, and are served.")


def step(text: str) -> None:
    console.print(f"\n[cyan]●[/cyan] {text}")


def tailrace(data: Path, *arguments: str) -> None:
    console.print(f"  [dim]$ tailrace {' '.join(arguments)} {data.name}[/dim]")
    command = [sys.executable, "-m", "tailrace.cli.main", *arguments, data.name]
    output = subprocess.run(command, capture_output=True, text=True, check=False, cwd=data.parent)
    for line in (output.stdout + output.stderr).splitlines():
        console.print(f"  {line}", markup=False)


if __name__ == "__main__":
    write(sys.argv[1])
