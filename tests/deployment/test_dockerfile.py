import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from deployment.image import REPOSITORY, Image, instructions

DOCKERFILE = REPOSITORY / "packaging" / "Dockerfile"
START_S = 60


@pytest.fixture
def image() -> Iterator[Image]:
    directory = Path(tempfile.mkdtemp(prefix="tailrace-image-"))  # not below tmp_path, which only root may enter
    directory.chmod(0o755)
    try:
        image = Image(directory)
        image.build(DOCKERFILE)
        yield image
    finally:
        shutil.rmtree(directory)


@pytest.mark.slow
@pytest.mark.timeout(600)  # it installs the wheel and all that it needs
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as another user")
def test_the_image_serves_clients_as_its_own_user_and_reports_its_health(image: Image) -> None:
    assert not image.is_healthy()
    process = image.start()
    try:
        deadline = time.monotonic() + START_S
        while not image.is_healthy():
            assert process.poll() is None, "the broker ended"
            assert time.monotonic() < deadline, "the broker did not become healthy"
            time.sleep(0.1)
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{image.ports['9092']}"})
        producer.produce("orders", b"tea")
        assert producer.flush(10) == 0
        assert Path(f"/proc/{process.pid}").stat().st_uid == image.user != 0
    finally:
        process.terminate()
    assert process.wait(30) == 0
    assert not image.is_healthy()
    segment = image.root / "var/lib/tailrace/orders-0/00000000000000000000.log"
    assert segment.stat().st_uid == image.user
    assert b"tea" in segment.read_bytes()


def test_the_image_listens_on_loopback_and_does_not_run_as_root() -> None:
    found = dict(instructions(DOCKERFILE))  # of each instruction, the last
    assert "--insecure" not in found["CMD"]
    assert '"--listen", "127.0.0.1:9092"' in found["CMD"]
    assert found["USER"] == "10001:10001"
