"""Which topics are meant, and how far a load got."""

import json
from pathlib import Path

import pytest

from tailrace.cli.output import Failure
from tailrace.cli.resuming import Bookmark, Progress
from tailrace.cli.selection import Selection, require

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
    bookmark(file).write(Progress(100_000, 9_000))
    assert bookmark(file).read() == Progress(100_000, 9_000)
    assert bookmark(file, cluster="other").read() is None
    assert bookmark(file, topic="other").read() is None
    bookmark(file).remove()
    assert bookmark(file).read() is None
    assert list(bookmark(file).path.parent.iterdir()) == []


def test_lines_added_to_the_file_or_changed_behind_the_bookmark_are_fine(file: Path) -> None:
    bookmark(file).write(Progress(100_000, 9_000))
    content = bytearray(file.read_bytes() + b"more\n")
    content[100_001] ^= 1
    file.write_bytes(content)
    assert bookmark(file).read() == Progress(100_000, 9_000)


@pytest.mark.parametrize("position", [0, 99_999])
def test_a_file_that_has_changed_is_refused(file: Path, position: int) -> None:
    bookmark(file).write(Progress(100_000, 9_000))
    content = bytearray(file.read_bytes())
    content[position] ^= 1
    file.write_bytes(content)
    with pytest.raises(Failure, match="has changed") as failure:
        bookmark(file).read()
    assert failure.value.code == 5


def test_a_file_that_was_cut_a_topic_made_anew_and_a_broken_note_are_refused(file: Path) -> None:
    bookmark(file).write(Progress(100_000, 9_000))
    with pytest.raises(Failure, match="made anew"):
        bookmark(file, topic_id="other").read()
    file.write_bytes(file.read_bytes()[:99_999])
    with pytest.raises(Failure, match="shorter"):
        bookmark(file).read()
    for broken in ("", "[]", json.dumps({"position": 1})):
        bookmark(file).path.write_text(broken)
        with pytest.raises(Failure, match="cannot be read"):
            bookmark(file).read()
