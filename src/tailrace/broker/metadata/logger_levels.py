"""Logger levels, as Kafka has them: configs of the resource type BROKER_LOGGER, one for each logger.

They hold until the process ends, and are not stored. `root` applies to all loggers without a level of their own.
"""

import logging
from collections.abc import Sequence

from tailrace.broker.core.errors import Refused
from tailrace.broker.metadata.config_changes import Operation
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.incremental_alter_configs import AlterableConfig

ROOT = "root"
LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_OURS = "tailrace"


def levels() -> dict[str, str]:
    """Returns the effective level of each logger, by name."""
    names = [name for name in logging.Logger.manager.loggerDict if name.startswith(f"{_OURS}.")]
    return {name: _level_of(name) for name in [ROOT, *sorted(names)]}


def _level_of(name: str) -> str:
    effective = _logger(name).getEffectiveLevel()
    return next((text for text, level in LEVELS.items() if level >= effective), "FATAL")


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(_OURS if name == ROOT else name)


def alter_loggers(changes: Sequence[AlterableConfig], *, validate_only: bool) -> None:
    """Makes all of the changes, or none. Raises Refused."""
    known = levels()
    wanted: dict[str, int] = {}
    for change in changes:
        if change.name in wanted:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{change.name} appears twice in the request")
        if change.name not in known:
            raise Refused(ErrorCode.INVALID_CONFIG, f"unknown logger {change.name[:250]!r}")
        wanted[change.name] = _wanted_level(change)
    for name, level in wanted.items():
        if not validate_only:
            _logger(name).setLevel(level)


def _wanted_level(change: AlterableConfig) -> int:
    if change.config_operation == Operation.DELETE and change.name != ROOT:
        return logging.NOTSET
    if change.config_operation != Operation.SET:
        raise Refused(ErrorCode.INVALID_REQUEST, f"the level of {change.name} can only be set")
    level = LEVELS.get((change.value or "").strip())
    if level is None:
        raise Refused(ErrorCode.INVALID_CONFIG, f"the level of {change.name} must be one of {', '.join(LEVELS)}")
    return level
