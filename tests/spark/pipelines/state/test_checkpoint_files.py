"""Damage in the small files of a checkpoint is found, and the file is named."""

from pathlib import Path

import pytest

from tailrace.spark.pipelines.state.checkpoint_files import DamagedCheckpoint, check_logs, check_metadata
from tailrace.spark.pipelines.state.history import finished

ABOUT = '{"batchWatermarkMs":0,"batchTimestampMs":7,"conf":{}}'
SOUND = {
    "metadata": '{"id":"5"}',
    **{f"offsets/{number}": f'v1\n{ABOUT}\n{{"t": {{"0": {number}}}}}\n-' for number in range(11)},
    **{f"commits/{number}": 'v1\n{"nextBatchWatermarkMs":0}' for number in range(11)},
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    for name, text in SOUND.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (tmp_path / "offsets" / ".10.crc").write_bytes(b"crc")
    return tmp_path


def test_a_sound_checkpoint_and_a_new_one_are_let_through(checkpoint: Path) -> None:
    for path in (checkpoint, checkpoint / "none"):
        check_logs(path)
        check_metadata(path)


@pytest.mark.parametrize("name", ["offsets/10", "offsets/9", "commits/10"])
@pytest.mark.parametrize("text", ["", "v1", f'v1\n{ABOUT}\n{{"t": ', "\0" * 40])
def test_a_damaged_file_is_named(checkpoint: Path, name: str, text: str) -> None:
    (checkpoint / name).write_text(text)
    with pytest.raises(DamagedCheckpoint, match=f"^{checkpoint / name} is damaged: .* start over"):
        check_logs(checkpoint)


def test_a_damaged_id_is_named(checkpoint: Path) -> None:
    (checkpoint / "metadata").write_text('{"id":')
    with pytest.raises(DamagedCheckpoint, match="metadata is damaged"):
        check_metadata(checkpoint)


def test_a_damaged_file_that_is_read_for_the_history_is_named(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "3").write_text("v1\n{")
    with pytest.raises(DamagedCheckpoint, match="offsets/3 is damaged"):
        list(finished(checkpoint, -1))
