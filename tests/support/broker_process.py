"""The broker process of `tailrace.testing`, with what Linux counts for it.

with BrokerProcess(tmp_path / "data") as broker:
    RawClient(broker.address) …
    broker.cpu_s(), broker.rss_bytes()
"""

import os
from pathlib import Path

from tailrace.testing import broker_process


class BrokerProcess(broker_process.BrokerProcess):
    start_s = 30.0
    stop_s = 20.0

    def peak_bytes(self) -> int:
        """The most resident memory at once since `forget_peak`."""
        return self.status_bytes("VmHWM")

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))
