"""Decides config changes: checks requested values against the registry, and returns metadata records.

Nothing changes here. The caller appends the records, and their replay changes the state. The changes for one topic or
broker are made all together, or not at all.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from tailrace.broker.configs.groups import check_group, check_group_config, group_key
from tailrace.broker.configs.keys import ConfigKey, ConfigType, InvalidConfig, parts_of
from tailrace.broker.configs.registry import (
    BACKLOG_PREFIX,
    COMPRESSION_KEYS,
    BrokerConfigs,
    backlog_config,
    broker_key,
    check_backlog,
    topic_config,
    topic_entry,
    topic_key,
)
from tailrace.broker.configs.tables import BROKER_KEYS
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.partition import Partition
from tailrace.broker.core.topics import Topic
from tailrace.broker.metadata.records import AnchoredPosition, BacklogAnchored, ConfigChanged, MetadataRecord
from tailrace.broker.metadata.state import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from tailrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tailrace.protocol.messages.incremental_alter_configs import AlterableConfig


class Operation(IntEnum):
    """Operations on a config, by Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def checked_overrides(overrides: Mapping[str, str | None], configs: BrokerConfigs) -> dict[str, str]:
    """Returns the configs of a topic to be created, as they are stored. Raises Refused."""
    checked: dict[str, str] = {}
    for name, text in overrides.items():
        if text is None:
            raise Refused(ErrorCode.INVALID_CONFIG, f"{name} has no value")
        try:
            checked[name] = _checked(topic_key(name), text)
        except InvalidConfig as error:
            raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None
    _check_together(checked, configs)
    return checked


def _checked(key: ConfigKey, text: str) -> str:
    key.parse(text)
    return key.tidy(text)


def _check_together(overrides: Mapping[str, str], configs: BrokerConfigs) -> None:
    """Raises Refused if a topic cannot have all of these configs: what is written must be replayable."""
    # All other keys have been checked one by one, which is enough.
    if not overrides.keys().isdisjoint(COMPRESSION_KEYS) or any(name.startswith(BACKLOG_PREFIX) for name in overrides):
        try:
            check_backlog(topic_config(overrides, configs).backlog)
        except InvalidConfig as error:
            raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None
    if not overrides.keys() & {"min.compaction.lag.ms", "max.compaction.lag.ms"}:
        return
    least = topic_entry("min.compaction.lag.ms", overrides, configs)
    most = topic_entry("max.compaction.lag.ms", overrides, configs)
    if int(least.text or 0) > int(most.text or 0):
        raise Refused(
            ErrorCode.INVALID_CONFIG,
            f"min.compaction.lag.ms ({least.text}) is greater than max.compaction.lag.ms ({most.text})",
        )


def alter_topic(
    topic: Topic, changes: Sequence["AlterableConfig"], configs: BrokerConfigs, now_ms: int
) -> list[MetadataRecord]:
    """Returns the records that change a topic's configs. Raises Refused if one of the changes cannot be made."""
    if topic.is_internal:
        raise Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is an internal topic: its configs cannot be changed"
        )
    own = topic.overrides
    try:
        wanted = _wanted(changes, topic_key, lambda name: topic_entry(name, own, configs).text)
    except InvalidConfig as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None
    merged = {name: text for name, text in {**own, **wanted}.items() if text is not None}
    _check_together(merged, configs)
    new = [group for group in backlog_config(merged, configs).groups if group not in topic.config.backlog.groups]
    anchored = [anchors_of(topic, group, topic.touched, now_ms) for group in new]
    return [*_records(TOPIC_RESOURCE, topic.name, own, wanted), *anchored]


def anchors_of(topic: Topic, group: str, partitions: Iterable[Partition], now_ms: int) -> BacklogAnchored:
    """Returns the record that a group stands at the end of these partitions, while it has no commit."""
    positions = [  # what is not flushed may not survive a crash: the group would wait behind the end
        AnchoredPosition(partition=partition.index, offset=partition.high_watermark)
        for partition in partitions
        if partition.high_watermark
    ]
    return BacklogAnchored(topic_id=topic.topic_id, group=group, at_ms=now_ms, positions=positions)


def alter_broker(name: str, changes: Sequence["AlterableConfig"], configs: BrokerConfigs) -> list[MetadataRecord]:
    """Returns the records that change the configs of one broker, or with "" of all brokers. Raises Refused if one of
    the changes cannot be made.
    """
    if name:
        check_broker(name, configs)
    # Deleting a config that cannot be set at run time changes nothing, and is no error.
    is_set = (change for change in changes if change.config_operation != Operation.DELETE)
    if fixed := sorted(change.name for change in is_set if _is_fixed(change.name)):
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"cannot be changed at run time, only at the start: {', '.join(fixed)}"
        )
    own = configs.at_run_time.get(name, {})
    try:
        wanted = _wanted(changes, broker_key, lambda key: own.get(key, configs.entry(key).text))
        configs.check_with(name, wanted)
    except InvalidConfig as error:
        raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from None
    return _records(BROKER_RESOURCE, name, own, wanted)


def alter_group(
    name: str, changes: Sequence["AlterableConfig"], own: Mapping[str, str], configs: BrokerConfigs
) -> list[MetadataRecord]:
    """Returns the records that change the configs of a group, which need not exist. Raises Refused if one of the
    changes cannot be made.
    """
    if not name:
        raise Refused(ErrorCode.INVALID_REQUEST, "the group name is empty: defaults for all groups are broker configs")
    try:
        wanted = _wanted(changes, group_key, own.get)
        for key, text in wanted.items():
            if text is not None:
                check_group_config(key, text, configs)
        after = {key: text for key, text in {**own, **wanted}.items() if text is not None}
        if wanted:
            check_group(after, configs)
    except InvalidConfig as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None
    return _records(GROUP_RESOURCE, name, own, wanted)


def check_broker(name: str, configs: BrokerConfigs) -> None:
    """Raises Refused if `name` is not this broker's."""
    if name != configs.node_name:
        raise Refused(ErrorCode.INVALID_REQUEST, f"unknown broker {name[:250]!r}: this is broker {configs.node_name}")


def no_such_type(kind: int) -> Refused:
    return Refused(
        ErrorCode.INVALID_REQUEST,
        f"unknown config resource type {kind}: 2 is topic, 4 broker, 8 broker logger, 32 group",
    )


def _is_fixed(name: str) -> bool:
    key = BROKER_KEYS.get(name)
    return key is not None and not key.is_dynamic


def _wanted(
    changes: Sequence["AlterableConfig"], find: Callable[[str], ConfigKey], current: Callable[[str], str | None]
) -> dict[str, str | None]:
    """Returns the resulting value of each changed config; None is the default. Raises Refused, InvalidConfig."""
    wanted: dict[str, str | None] = {}
    for change in changes:
        if change.name in wanted:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{change.name} appears twice in the request")
        if change.config_operation == Operation.DELETE:
            wanted[change.name] = None  # also of an unknown config: there is nothing to delete
        else:
            wanted[change.name] = _new_text(change, find, current)
    return wanted


def _new_text(change: "AlterableConfig", find: Callable[[str], ConfigKey], current: Callable[[str], str | None]) -> str:
    if change.config_operation not in (Operation.SET, Operation.APPEND, Operation.SUBTRACT):
        raise Refused(ErrorCode.INVALID_REQUEST, f"unknown config operation {change.config_operation}")
    if change.value is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{change.name} has no value")
    key = find(change.name)
    if change.config_operation == Operation.SET:
        return _checked(key, change.value)
    if key.type is not ConfigType.LIST:
        raise Refused(ErrorCode.INVALID_CONFIG, f"{key.name} is not a list: use SET instead of APPEND or SUBTRACT")
    old, parts = parts_of(current(key.name) or ""), parts_of(change.value)
    if change.config_operation == Operation.APPEND:
        return _checked(key, ",".join(dict.fromkeys([*old, *parts])))
    left = set(parts)
    return _checked(key, ",".join(part for part in old if part not in left))


def _records(kind: int, name: str, own: Mapping[str, str], wanted: Mapping[str, str | None]) -> list[MetadataRecord]:
    """Returns one record for each value that changes."""
    return [
        ConfigChanged(resource_type=kind, resource_name=name, key=key, value=text)
        for key, text in wanted.items()
        if own.get(key) != text
    ]
