"""A broker in a process of its own, and what it costs: memory and processor time, as Linux counts them.

with BrokerProcess(tmp_path / "data") as broker:
    RawClient(broker.address) …
    broker.cpu_s(), broker.rss_bytes()
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

START_S = 30


class BrokerProcess:
    def __init__(self, data: Path, *options: str, listen: str = "127.0.0.1:0", metrics: str = "off") -> None:
        self.data = data
        self._said = data.with_suffix(".said")
        command = [sys.executable, "-m", "tailrace", "serve", "--data", str(data), "--listen", listen]
        with self._said.open("wb") as file:
            self.process = subprocess.Popen(
                [*command, "--metrics", metrics, *options],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        return self._said.read_text()

    @property
    def address(self) -> tuple[str, int]:
        host, port = re.findall(r"listening on (\S+):(\d+)", self.said)[0]
        return host, int(port)

    def __enter__(self) -> "BrokerProcess":
        deadline = time.monotonic() + START_S
        while "Connect any Kafka client" not in self.said:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> int:
        """Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def cpu_s(self) -> float:
        """Processor time that it has taken so far, of all its threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_bytes(self) -> int:
        return self._status("VmRSS")

    def peak_bytes(self) -> int:
        """The most memory that it has had at once since `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def _status(self, name: str) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        assert found
        return int(found[1]) * 1024

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))
