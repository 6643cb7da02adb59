"""Which topics are meant, from where to where they are read, and how far a load got."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tailrace.cli.common.output import Failure
from tailrace.cli.common.topics import ranges as spans
from tailrace.cli.common.topics.offsets import Partition
from tailrace.cli.common.topics.positions import Earliest, Last, Latest, Offset, Position, Time
from tailrace.cli.common.topics.ranges import OffsetRange
from tailrace.cli.common.topics.selection import Selection, require
from tailrace.cli.produce.bookmark import Bookmark, ResumePoint

TOPICS = ["orders", "orders-eu", "orders.us", "payments", "__consumer_offsets"]


def test_a_name_is_itself_and_a_pattern_matches_whole_names() -> None:
    assert Selection(["orders"]).of(TOPICS) == ["orders"]
    assert Selection(["orders.us"]).of(["ordersxus"]) == []
    assert Selection(["orders.+"]).of(TOPICS) == ["orders-eu", "orders.us"]
    assert Selection(["payments", "orders-.*"]).of(TOPICS) == ["orders-eu", "payments"]
    assert Selection(["orders.us"], always=True).of(["ordersxus"]) == ["ordersxus"]


def test_internal_topics_are_meant_only_by_those_who_say_so() -> None:
    assert "__consumer_offsets" not in Selection([".*"]).of(TOPICS)
    assert Selection(["__.*"]).of(TOPICS) == ["__consumer_offsets"]
    assert Selection(["__consumer_offsets"]).of(TOPICS) == ["__consumer_offsets"]


def test_who_writes_a_pattern_as_for_files_is_told() -> None:
    assert "orders-.*" in Selection(["orders-*"]).hint()
    assert Selection(["orders.*"]).hint() == ""
    with pytest.raises(Failure, match=r"every topic is '\.\*'"):
        Selection(["*"])


def test_a_mistyped_name_gets_a_suggestion() -> None:
    require(["orders"], TOPICS, "here")
    with pytest.raises(Failure, match="did you mean orders") as failure:
        require(["ordres"], TOPICS, "here")
    assert failure.value.code == 4
    with pytest.raises(Failure, match="topic create zebra"):
        require(["zebra"], TOPICS, "here", makes=True)


class Known:
    """Offsets of a log that begins at 10 and ends at 20, with a message each second from 10 s on."""

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 10)

    def latest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 20)

    def at(self, partitions: Iterable[Partition], timestamp: int) -> dict[Partition, int]:
        return dict.fromkeys(partitions, max(10, -(-timestamp // 1000)) if timestamp <= 19_000 else -1)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (Earliest(), None, OffsetRange(10, 20)),
        (Latest(), None, OffsetRange(20, 20)),
        (Offset(15), None, OffsetRange(15, 20)),
        (Offset(3), None, OffsetRange(10, 20)),
        (Offset(30), None, OffsetRange(30, 20)),
        (Last(2), None, OffsetRange(18, 20)),
        (Last(100), None, OffsetRange(10, 20)),
        (Time(12_500), None, OffsetRange(13, 20)),
        (Time(0), None, OffsetRange(10, 20)),
        (Time(99_000), None, OffsetRange(20, 20)),
        (Offset(12), Offset(15), OffsetRange(12, 16)),
        (Earliest(), Offset(99), OffsetRange(10, 20)),
        (Earliest(), Time(12_000), OffsetRange(10, 12)),
        (Earliest(), Time(99_000), OffsetRange(10, 20)),
        (Earliest(), Last(3), OffsetRange(10, 17)),
    ],
)
def test_where_to_read_is_found_in_what_brokers_say(
    start: Position, end: Position | None, expected: OffsetRange
) -> None:
    known: Any = Known()
    partition = Partition("orders", 0)
    assert spans.resolve(known, [partition], start, end, follow=False) == {partition: expected}
    assert spans.resolve(known, [partition], start, end, follow=True) == {partition: OffsetRange(expected.first)}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "lines.txt"
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(20_000)))
    return path


def bookmark(file: Path, cluster: str = "c", topic: str = "t", topic_id: str = "i") -> Bookmark:
    return Bookmark(file, cluster=cluster, topic=topic, topic_id=topic_id)


def test_a_bookmark_is_found_again_for_the_same_file_cluster_and_topic(file: Path) -> None:
    assert bookmark(file).read() is None
    bookmark(file).write(ResumePoint(100_000, 9_000))
    assert bookmark(file).read() == ResumePoint(100_000, 9_000)
    assert bookmark(file, cluster="other").read() is None
    assert bookmark(file, topic="other").read() is None
    bookmark(file).remove()
    assert bookmark(file).read() is None
    assert list(bookmark(file).path.parent.iterdir()) == []


def test_lines_added_to_the_file_or_changed_behind_the_bookmark_are_fine(file: Path) -> None:
    bookmark(file).write(ResumePoint(100_000, 9_000))
    content = bytearray(file.read_bytes() + b"more\n")
    content[100_001] ^= 1
    file.write_bytes(content)
    assert bookmark(file).read() == ResumePoint(100_000, 9_000)


@pytest.mark.parametrize("position", [0, 99_999])
def test_a_file_that_has_changed_is_refused(file: Path, position: int) -> None:
    bookmark(file).write(ResumePoint(100_000, 9_000))
    content = bytearray(file.read_bytes())
    content[position] ^= 1
    file.write_bytes(content)
    with pytest.raises(Failure, match="has changed") as failure:
        bookmark(file).read()
    assert failure.value.code == 5


def test_a_file_that_was_cut_a_topic_made_anew_and_a_broken_note_are_refused(file: Path) -> None:
    bookmark(file).write(ResumePoint(100_000, 9_000))
    with pytest.raises(Failure, match="made anew"):
        bookmark(file, topic_id="other").read()
    file.write_bytes(file.read_bytes()[:99_999])
    with pytest.raises(Failure, match="shorter"):
        bookmark(file).read()
    for broken in ("", "[]", json.dumps({"position": 1})):
        bookmark(file).path.write_text(broken)
        with pytest.raises(Failure, match="cannot be read"):
            bookmark(file).read()
