"""Writing what a handler has decided; and where the disk refuses, saying so to everyone who was to be told yes."""

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from tailrace.broker.core.errors import code_of
from tailrace.broker.metadata.records import MetadataRecord
from tailrace.log.layout.errors import StorageError

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

logger = logging.getLogger(__name__)


class Result(Protocol):
    """What an answer says of one of the things that were asked for."""

    error_code: int
    error_message: str | None


def write_or_refuse(
    changes: Sequence[MetadataRecord], results: Iterable[Result], now_ms: int, broker: "Broker"
) -> bool:
    """Whether the changes are made. If not, every result that had no error has one."""
    try:
        broker.metadata_log.write(changes, now_ms)
    except StorageError as error:
        logger.error("%s: nothing was changed", error)
        for result in results:
            if not result.error_code:
                result.error_code, result.error_message = code_of(error), str(error)
        return False
    return True
