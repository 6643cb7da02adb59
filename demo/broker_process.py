"""`tailrace serve` as a process that can be killed and started again, and how long each start takes."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tailrace.testing import broker_process
from tailrace.testing.broker_process import HOST, BrokerNotReady, free_port


class BrokerProcess(broker_process.BrokerProcess):
    stop_s = 20.0

    def __init__(
        self, directory: Path, data: str = "data", *, configs: Mapping[str, str] | None = None, monitor: bool = False
    ) -> None:
        listen, output = f"{HOST}:{free_port()}", directory / f"serve-{data}.log"
        super().__init__(data, listen=listen, output=output, configs=configs, monitor=monitor)
        self.directory = directory
        self.started_at = 0.0
        self.ready_at: float | None = None

    @property
    def shown_command(self) -> str:
        """As the audience could type it, in the directory."""
        return f"tailrace serve --data data --listen {self.bootstrap} --metrics off"

    def process_options(self) -> dict[str, Any]:
        return {"cwd": self.directory}

    @property
    def start_seconds(self) -> float:
        """From the start of the process until it served."""
        return (self.ready_at or self.started_at) - self.started_at

    def start(self, *, wait: bool = False) -> "BrokerProcess":
        """Returns at once; `is_ready` tells when it serves."""
        self.ready_at = None
        self.started_at = time.perf_counter()
        return super().start(wait=wait)

    def is_ready(self) -> bool:
        """Raises BrokerNotReady for a process that ended without ever being ready."""
        if self.ready_at is None and super().is_ready():
            self.ready_at = time.perf_counter()
        if self.ready_at is None and self.exit_code is not None:
            raise BrokerNotReady(f"{self.shown_command}\n{self.said[-2000:]}")
        return self.ready_at is not None

    def kill(self) -> None:
        """Does nothing to a broker that was never started."""
        if self.is_running:
            super().kill()
