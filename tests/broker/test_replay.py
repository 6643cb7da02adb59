"""The metadata log, read by another process: it comes to the same state as the broker that wrote it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from brokers import LocalBroker

from tailrace.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from tailrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tailrace.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tailrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tailrace.protocol.messages.init_producer_id import InitProducerIdRequest

# Another broker, with another id and other values at its start.
READER = """
import json, sys
from tailrace.broker.configs.registry import BrokerConfigs
from tailrace.broker.metadata.state import Metadata
from tailrace.broker.metadata.log import replay_all
from tailrace.broker.startup import METADATA_PARTITION
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.os_files import OperatingSystemFiles

metadata = Metadata(BrokerConfigs({"node.id": "7", "log.segment.bytes": "3000000"}))
replay_all(DataDirectory(OperatingSystemFiles(), sys.argv[1]).logs[METADATA_PARTITION], metadata)
print(json.dumps(metadata.describe()))
"""


def read_elsewhere(data: Path, copy: Path) -> Any:
    """What a process says that has a copy of the metadata log, and nothing else of the broker."""
    shutil.copytree(data / "__tailrace_metadata-0", copy / "__tailrace_metadata-0")
    done = subprocess.run([sys.executable, "-c", READER, str(copy)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def as_json(broker: LocalBroker) -> Any:
    return json.loads(json.dumps(broker.broker.metadata.describe()))


def change_everything(broker: LocalBroker) -> None:
    config = CreatableTopicConfig(name="retention.ms", value="7")
    topics = [
        CreatableTopic(name=f"topic-{n}", num_partitions=n + 1, replication_factor=1, configs=[config] * (n % 2))
        for n in range(6)
    ]
    broker.ask(CreateTopicsRequest(topics=topics), 7)
    broker.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="topic-1")]), 6)
    broker.ask(CreateTopicsRequest(topics=[CreatableTopic(name="topic-1", num_partitions=9, replication_factor=1)]), 7)
    grown = CreatePartitionsTopic(name="topic-2", count=5, assignments=None)
    broker.ask(CreatePartitionsRequest(topics=[grown]), 3)
    changes = [
        AlterConfigsResource(resource_type=kind, resource_name=name, configs=[AlterableConfig(name=key, value="9")])
        for kind, name, key in [(2, "topic-0", "segment.ms"), (4, "", "log.roll.ms"), (4, "1", "log.retention.ms")]
    ]
    broker.ask(IncrementalAlterConfigsRequest(resources=changes), 1)
    broker.ask(InitProducerIdRequest(), 4)
    entity = [EntityData(entity_type="client-id", entity_name="é"), EntityData(entity_type="user", entity_name=None)]
    quotas = [OpData(key="producer_byte_rate", value=7.0), OpData(key="request_percentage", value=12.5)]
    broker.ask(AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=quotas)]), 1)


def test_another_process_that_replays_the_metadata_log_has_the_same_state(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker:
        change_everything(broker)
        broker.kill()
        state = as_json(broker)
        assert len(state["topics"]) == 7
        assert len(state["deleted"]) == 1
        assert state["unclean_starts"] == 1
        assert state["client_quotas"] == {
            "(('client-id', 'é'), ('user', None))": {"producer_byte_rate": 7.0, "request_percentage": 12.5}
        }
        assert state["broker_configs"] == {"": {"log.roll.ms": "9"}, "1": {"log.retention.ms": "9"}}
        assert read_elsewhere(tmp_path / "data", tmp_path / "copy") == state


def test_it_has_so_while_the_broker_runs_and_after_it_has_stopped(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker:
        broker.create_topic()
        assert read_elsewhere(tmp_path / "data", tmp_path / "while it runs") == as_json(broker)
        change_everything(broker)
        broker.restart()
        assert read_elsewhere(tmp_path / "data", tmp_path / "after a stop") == as_json(broker)
