"""A batch that is lost with its checksum file: the history of the topic's configs tells whether that is damage."""

from collections.abc import Callable
from pathlib import Path

import pytest
from brokers import LocalBroker, from_offset, only_partition

from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.tools.locate import locate
from tailrace.log.tools.verify import Verification, verify
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tailrace.records.batch import split

TOPIC, BROKER = 2, 4


def set_config(broker: LocalBroker, kind: int, name: str, key: str, value: str) -> None:
    configs = [AlterableConfig(name=key, config_operation=0, value=value)]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    response = broker.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert [one.error_code for one in response.responses] == [0], response


def compacted_once(broker: LocalBroker) -> None:
    set_config(broker, TOPIC, "orders", "cleanup.policy", "compact")
    set_config(broker, TOPIC, "orders", "cleanup.policy", "delete")


def compacted_by_default(broker: LocalBroker) -> None:
    set_config(broker, BROKER, "", "log.cleanup.policy", "compact")
    set_config(broker, BROKER, "", "log.cleanup.policy", "delete")


def another_is_compacted(broker: LocalBroker) -> None:
    broker.create_topic("others", cleanup_policy="compact")


def produce_segments(broker: LocalBroker) -> None:
    for number in range(12):
        broker.produce(b"value %d" % number)
        if number % 4 == 3:
            broker.log().roll()
    broker.run_jobs()


def lose_a_batch(path: Path) -> int:
    """Of the second segment, with its checksum file. Returns the offset."""
    log = sorted((path / "orders-0").glob("*.log"))[1]
    content = log.read_bytes()
    position, header = list(split(content))[1]
    log.write_bytes(content[:position] + content[position + header.size :])
    log.with_suffix(".sums").unlink()
    return header.base_offset


def verified(path: Path) -> Verification:
    files = OperatingSystemFiles()
    return verify(files, locate(files, str(path)))


@pytest.mark.parametrize(
    ("happened", "is_damage"),
    [(lambda broker: None, True), (another_is_compacted, True), (compacted_once, False), (compacted_by_default, False)],
    ids=["nothing", "another topic", "compact once", "compact by default"],
)
def test_a_lost_batch_is_damage_where_no_compaction_can_have_removed_it(
    tmp_path: Path, happened: Callable[[LocalBroker], None], is_damage: bool
) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        happened(broker)
        produce_segments(broker)
    lost = lose_a_batch(tmp_path)
    found = verified(tmp_path)
    assert [(damage.first_offset, damage.last_offset) for damage in found.damage] == [(lost, lost)] * is_damage
    assert any("without a checksum file" in note for note in found.notes) != is_damage
    with LocalBroker(tmp_path) as broker:
        answer = only_partition(broker.fetch(from_offset(lost)))
        assert answer.error_code == (ErrorCode.CORRUPT_MESSAGE if is_damage else ErrorCode.NONE)
        before = only_partition(broker.fetch(from_offset(lost - 1)))
        assert before.error_code == ErrorCode.NONE
        assert [header.base_offset for _, header in split(bytes(before.records))][:2] == (
            [lost - 1] if is_damage else [lost - 1, lost + 1]
        )
        assert only_partition(broker.fetch(from_offset(lost + 1))).error_code == ErrorCode.NONE


def test_a_gap_that_a_repair_has_recorded_stays_readable_without_a_checksum_file(tmp_path: Path) -> None:
    from tailrace.log.tools.repair import make_plan
    from tailrace.log.tools.repair_steps import carry_out

    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        produce_segments(broker)
    lost = lose_a_batch(tmp_path)
    files = OperatingSystemFiles()
    carry_out(files, make_plan(files, locate(files, str(tmp_path))), str(tmp_path), "2026-11-16T10:00:00+00:00")
    assert verified(tmp_path).healthy
    for path in (tmp_path / "orders-0").glob("*.sums"):
        path.unlink()
    assert verified(tmp_path).healthy
    with LocalBroker(tmp_path) as broker:
        answer = only_partition(broker.fetch(from_offset(lost)))
        assert answer.error_code == ErrorCode.NONE
        assert answer.records


def test_a_metadata_log_that_lost_a_record_and_its_checksum_file_does_not_start(tmp_path: Path) -> None:
    from tailrace.log.layout.errors import Damaged

    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.broker.metadata_log.log.roll()
        broker.create_topic("others")
    log = min((tmp_path / "__tailrace_metadata-0").glob("*.log"))
    content = log.read_bytes()
    position, header = list(split(content))[1]
    log.write_bytes(content[:position] + content[position + header.size :])
    log.with_suffix(".sums").unlink()
    with pytest.raises(Damaged):
        LocalBroker(tmp_path)
