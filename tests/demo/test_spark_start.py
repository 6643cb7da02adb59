"""Spark's early start leaves nothing behind, whatever becomes of the rehearsal."""

import threading
from typing import Any

import pytest

import tailrace.spark
from demo.broker_process import BrokerProcess
from demo.spark_start import SparkStart


class Session:
    """In the place of Spark's, which takes long to start."""

    is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    session = Session()
    monkeypatch.setattr(tailrace.spark, "session", lambda *_, **__: session)
    return session


def test_closing_ends_the_broker_of_a_rehearsal_that_is_not_over(session: Session) -> None:
    has_begun, may_end = threading.Event(), threading.Event()
    brokers: list[BrokerProcess] = []

    def rehearsal(_: Any, broker: BrokerProcess) -> None:
        broker.start()
        brokers.append(broker)
        has_begun.set()
        may_end.wait()

    spark = SparkStart()
    spark.begin(rehearsal)
    has_begun.wait()
    assert spark.is_ready
    spark.close()
    assert not brokers[0].is_running
    assert session.is_stopped
    may_end.set()


def test_a_rehearsal_that_fails_is_no_failure_of_the_start(session: Session) -> None:
    over = threading.Event()

    def rehearsal(*_: Any) -> None:
        over.set()
        raise RuntimeError("a string broke")

    spark = SparkStart()
    spark.begin(rehearsal)
    over.wait()
    spark.close()
    assert spark.session is session
    assert spark.error is None
