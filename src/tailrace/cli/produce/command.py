"""`tailrace produce`: writes lines to a topic, from a pipe, a terminal or a file. Works against any Kafka."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli.common import connection
from tailrace.cli.common.connection import DEFAULT, Bootstrap, ClientConfig, Connection
from tailrace.cli.common.output import ExitCode, Failure


class Acks(StrEnum):
    ALL = "all"
    ONE = "1"
    NONE = "0"


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


Topic = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=connection.complete_topics)]
Source = Annotated[Path, typer.Argument(metavar="FILE|-", show_default=False, help="Else what comes from stdin.")]
AsJson = Annotated[bool, typer.Option("--json", help="Each line is a message as tail --json prints it.")]
Key = Annotated[str | None, typer.Option("-k", "--key", metavar="KEY", help="The key of all messages.")]
KeySeparator = Annotated[
    str | None, typer.Option("--key-separator", metavar="SEP", help="A line is KEY SEP VALUE; \\t is a tab.")
]
Header = Annotated[
    list[str] | None, typer.Option("-H", "--header", metavar="NAME:VALUE", help="Of all messages. May be repeated.")
]
Partition = Annotated[
    int | None, typer.Option("--partition", metavar="N", min=0, help="Instead of the one the key has.")
]
KeepPartition = Annotated[bool, typer.Option("--keep-partition", help="With --json: the one in the line.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with an interrupted load of FILE (see above).")]
AcksOption = Annotated[Acks, typer.Option("--acks", help="Who must have a message before it counts as written.")]
CompressionOption = Annotated[Compression, typer.Option("--compression", help="Of batches, on the wire and on disk.")]
Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=1, help="When a message counts as failed.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Read and check everything, and write nothing.")]


def produce(
    topic: Topic,
    source: Source = Path("-"),
    as_json: AsJson = False,
    key: Key = None,
    key_separator: KeySeparator = None,
    headers: Header = None,
    partition: Partition = None,
    keep_partition: KeepPartition = False,
    resume: Resume = False,
    acks: AcksOption = Acks.ALL,
    compression: CompressionOption = Compression.NONE,
    timeout: Timeout = 120,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Write lines to a topic: a message each.

    \b
    echo hello | tailrace produce greetings
    tailrace produce orders orders.txt --key-separator :
    tailrace produce orders big.jsonl --resume   goes on where it was interrupted
    tailrace tail orders --json --no-follow | tailrace produce copy --json

    A topic that is not there is made, if the broker does that, unless one with a similar name is.

    An empty line is a message with an empty value. With --json, a line is an object with value (or value_base64),
    and, if wanted, key (or key_base64), headers as a list of pairs, timestamp in milliseconds, and partition, which
    counts with --keep-partition only; null is null. Keys go to the partitions that Java's clients give them.

    How far a FILE got is noted every second in ~/.local/state/tailrace/loads (or under $XDG_STATE_HOME), and
    forgotten once it is done. An interrupted load goes on with --resume, behind the last line known to be
    acknowledged: lines that were on the way when it was interrupted may be written twice, and none is left out.
    """
    from tailrace.cli.common.topics.selection import require_legal
    from tailrace.cli.produce.line_parser import Parser
    from tailrace.cli.produce.transfer import Transfer

    if resume and source == Path("-"):
        raise Failure("--resume takes a FILE: what came through a pipe cannot be read again", ExitCode.USAGE)
    if partition is not None and keep_partition:
        raise Failure("--partition and --keep-partition exclude each other", ExitCode.USAGE)
    parser = Parser(
        as_json=as_json,
        key=key,
        key_separator=key_separator,
        headers=headers or [],
        partition=partition,
        keep_partition=keep_partition,
    )
    if source != Path("-") and not source.is_file():
        what = "is no file" if source.exists() else "does not exist"
        raise Failure(f"{source} {what}", ExitCode.USAGE if source.exists() else ExitCode.NOT_FOUND)
    require_legal(topic)
    brokers = Connection(bootstrap, client_config)
    transfer = Transfer(brokers, topic, None if source == Path("-") else source, parser, may_create=not dry_run)
    if dry_run:
        transfer.check(resume=resume)
    else:
        transfer.run(resume=resume, acks=acks, compression=compression, timeout=timeout)
    sys.stderr.flush()
