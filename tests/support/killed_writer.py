"""A process that appends, flushes, rolls, checkpoints and deletes for as long as it lives, and says how far it is
safe.

    killed_writer.py DIRECTORY SEED honest|losing|lying

It prints `flushed N` once everything below offset N is on disk. The records of an offset follow from the offset
alone, so that whoever reads the log later knows what they must be.
"""

import os
import random
import sys
from functools import partial

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.interface import Files
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.flush.queue import FlushQueue
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.names import TopicPartition
from tailrace.records.compression import Codec
from tailrace.records.record import Record, encode_batch
from tailrace.testing.losing_files import LosingFiles

ORDERS = TopicPartition("orders", 0)
CONFIG = LogConfig(segment_bytes=64 << 10, index_interval_bytes=1024)


def record_at(offset: int) -> Record:
    return Record(offset, 1000 + offset, b"key-%d" % (offset % 10), (b"value-%d|" % offset) * (1 + offset % 50))


def files_of(kind: str) -> Files:
    if kind == "honest":
        return OperatingSystemFiles()
    return LosingFiles(lies_about=".log" if kind == "lying" else None)


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def say_flushed(end: int, error: Exception | None) -> None:
    say(f"flushed {end}" if error is None else "offline")


def main(path: str, seed: int, kind: str) -> None:
    directory = DataDirectory(files_of(kind), path, CONFIG)
    log = directory.logs.get(ORDERS) or directory.create(ORDERS)
    lot, queue, now = random.Random(seed), FlushQueue(dirty_bytes_max=1 << 20), 1000
    say(f"flushed {log.high_watermark}")
    while True:
        now += 1
        end = int(log.end_offset)
        records = [record_at(end + n) for n in range(lot.randint(1, 20))]
        log.append(encode_batch(records, base_offset=end, codec=lot.choice([Codec.NONE, Codec.ZSTD])), now)
        queue.appended(log, now)
        if lot.random() < 0.3:
            end = int(log.end_offset)
            queue.when_flushed(log, end, partial(say_flushed, end))
            queue.run_all()
        if lot.random() < 0.02:
            directory.checkpoint(now)
        if lot.random() < 0.01 and log.high_watermark - log.start_offset > 2000:
            log.delete_before(log.high_watermark - 1000)
            directory.checkpoint(now)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
