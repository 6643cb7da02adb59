"""Formats of published topics: what is written is read, and what is no record of them is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.facts import lag, losses, positions, segments
from tailrace.facts.document import UnreadableFact
from tailrace.facts.lag import GroupLag, LagRow
from tailrace.facts.losses import Loss, LossKind, LossReason
from tailrace.facts.positions import GroupPositions
from tailrace.facts.segments import PartitionFact, SegmentFact

OFFSETS = st.integers(0, (1 << 63) - 1)
OPTIONAL = st.none() | OFFSETS
NAMES = st.text(max_size=20)

LOSSES = st.builds(
    Loss,
    kind=st.sampled_from(LossKind),
    topic=NAMES,
    topic_id=NAMES,
    partition=st.integers(0, 99),
    first=OFFSETS,
    last=OFFSETS,
    records=OFFSETS,
    exact=st.booleans(),
    at=OFFSETS,
    reason=st.none() | st.sampled_from(LossReason),
    group=NAMES,
    size=OPTIONAL,
    oldest=OPTIONAL,
    newest=OPTIONAL,
    client_id=st.none() | NAMES,
    user=st.none() | NAMES,
)
PARTITIONS = st.builds(
    PartitionFact,
    topic=NAMES,
    topic_id=NAMES,
    segments=st.lists(st.builds(SegmentFact, OFFSETS, OFFSETS, OFFSETS, OPTIONAL), max_size=3).map(tuple),
    hold_groups=st.lists(NAMES, max_size=3).map(tuple),
)
POSITIONS = st.builds(
    GroupPositions, NAMES, OFFSETS, st.booleans(), st.dictionaries(NAMES, st.dictionaries(st.integers(0, 9), OFFSETS))
)


@given(LOSSES)
def test_a_loss_is_read_as_it_was_written(loss: Loss) -> None:
    assert losses.decode(loss.encode()) == loss


@given(PARTITIONS)
def test_segments_are_read_as_they_were_written(fact: PartitionFact) -> None:
    assert segments.decode(fact.encode()) == fact


@given(POSITIONS, st.integers(1, 5))
def test_parts_of_positions_say_what_the_whole_says(group: GroupPositions, offsets_max: int) -> None:
    """To a reader that knows something else of the group."""
    before = GroupPositions(group.group, 0, True, {"other": {0: 1}})
    group = group._replace(offsets={topic: of for topic, of in group.offsets.items() if of})
    parts = list(group.parts(offsets_max))
    assert all(part.offset_count <= offsets_max for part in parts)
    assert positions.held_at([before, *parts], group.at) == positions.held_at([before, group], group.at)


@given(POSITIONS)
def test_positions_are_read_as_they_were_written(group: GroupPositions) -> None:
    assert positions.decode(group.encode()) == group


GROUP_LAG = GroupLag(
    "billing", 0, True, (LagRow("orders", 0, 3, 0, 9, 6, None, True, 5, 1.5, 0, None, 7, "age", "ok", 0, False),)
)


def test_lag_is_read_as_it_was_written() -> None:
    assert lag.decode_group(GROUP_LAG.encode()) == GROUP_LAG


@pytest.mark.parametrize("field", LagRow._fields)
def test_a_row_of_lag_with_a_value_of_another_type_is_refused(field: str) -> None:
    wrong: Any = {field: ["x"]}
    row = GROUP_LAG.rows[0]._replace(**wrong)
    with pytest.raises(UnreadableFact):
        lag.decode_group(GROUP_LAG._replace(rows=(row,)).encode())


@pytest.mark.parametrize(
    "decode",
    [losses.decode, segments.decode, positions.decode, lag.decode_group, lag.decode_beat],
    ids=["losses", "segments", "positions", "lag", "beat"],
)
@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"\xff", b"[]", b"{}", b'{"version":2}', b'{"version":1}', b'{"version":"1"}', b"[" * 100_000),
        b'{"version":1,"group":"\\ud800","at":1,"has_members":true,"rows":[]}',
    ],
    ids=lambda value: value[:20].decode(errors="replace"),
)
def test_what_is_no_record_of_the_topic_is_refused(decode, value: bytes) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UnreadableFact):
        decode(value)
