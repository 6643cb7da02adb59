"""`tailrace queue work`: runs a command for each message of a queue, several at a time."""

from typing import Annotated

import typer

from tailrace.cli.common import connection, output
from tailrace.cli.common.connection import DEFAULT, Bootstrap, ClientConfig


def work(
    name: Annotated[str, typer.Argument(metavar="GROUP", autocompletion=connection.complete_queues)],
    topic: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=connection.complete_topics)],
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND")],
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", min=1, max=1000, help="So many messages at a time.")
    ] = 1,
    drain: Annotated[bool, typer.Option("--drain", help="End when all messages of the topic are finished.")] = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Work on a queue: run a command for each message, with the value on its stdin.

    \b
    tailrace queue work thumbnails images -- ./make-thumbnail
    tailrace queue work thumbnails images --concurrency 20 -- ./make-thumbnail
    tailrace queue work mails orders --drain -- sh -c 'mail "$TAILRACE_KEY"'

    \b
    exit code 0   accept: the message is done
    exit code 65  reject: it is given up, and goes to the dead letters, if kept
    any other     release: it is tried again, after the queue's delay, until it
                  has had all its attempts

    The lock on a message is renewed as long as its command runs. Ctrl-C finishes what runs, and takes no more; a second
    one ends it and releases its messages. Of a worker that is killed, all messages are released at once, and what its
    commands are at, they finish.

    In the environment: TAILRACE_TOPIC, TAILRACE_PARTITION, TAILRACE_OFFSET, TAILRACE_ATTEMPT (1 at first),
    TAILRACE_TIMESTAMP (ms) and, if there is one, TAILRACE_KEY (TAILRACE_KEY_BASE64 if it has a NUL).
    """
    from tailrace.cli.queue import worker
    from tailrace.cli.queue.here import reach
    from tailrace.cli.queue.shift import WORDS, Shift

    worker.require(command)
    with reach(bootstrap, client_config) as here:
        here.require(name)
        here.offsets_of(name, topic)
        counts = Shift(here, name, topic, command, concurrency, drain=drain).run()
    done = ", ".join(f"{output.number(counts[outcome])} {word}" for outcome, word in WORDS.items())
    output.warn(f"queue {name}: {done}")
