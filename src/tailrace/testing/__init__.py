"""Tools for tests, shipped with tailrace: real brokers, a raw client, and file systems that record, lose and fail.

    broker            `Broker`: a broker in the test's process
    broker_process    `BrokerProcess`: `tailrace serve` as a process that can be stopped, killed and started again
    raw_client        `RawClient`: requests, frames and any bytes over a bare socket
    plugin            pytest fixtures of `Broker`
    history           checks what producers, consumers and topic changes did against what a log may do
    recording_files   a file system that records each change, to replay a power cut at any moment
    losing_files      a file system that loses what was not synced
    faulty_files      a file system with disk errors

The names below are imported on first use: tests that only want the file systems need not load a server.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.testing.broker import IMPATIENT, Broker
    from tailrace.testing.broker_process import BrokerNotReady, BrokerProcess
    from tailrace.testing.raw_client import RawClient

__all__ = ["IMPATIENT", "Broker", "BrokerNotReady", "BrokerProcess", "RawClient"]

_MODULES = {
    "IMPATIENT": "broker",
    "Broker": "broker",
    "BrokerNotReady": "broker_process",
    "BrokerProcess": "broker_process",
    "RawClient": "raw_client",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(name)
    return getattr(import_module(f"tailrace.testing.{_MODULES[name]}"), name)
