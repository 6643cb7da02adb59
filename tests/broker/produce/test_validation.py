"""The rules for a batch's header are written down twice: `is_usual` is fast, and `check_header` gives the reason."""

import pytest
from brokers import NOW_MS
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.broker.configs.registry import BacklogConfig, TopicConfig
from tailrace.broker.core.errors import Refused
from tailrace.broker.produce.validation import CODECS, TRANSACTIONAL_CODECS, ZSTD_FROM, check_header, is_usual
from tailrace.log.layout.config import LogConfig
from tailrace.records import batch
from tailrace.records.batch import BatchHeader
from tailrace.records.errors import CorruptBatch

BEFORE_MS, AFTER_MS = 1000, 500
SIZE_MAX = 1000
USUAL = BatchHeader(
    base_offset=0,
    length=100 - batch.LENGTH_END,
    leader_epoch=-1,
    magic=batch.MAGIC,
    crc=0,
    attributes=0,
    last_offset_delta=0,
    base_timestamp=NOW_MS,
    max_timestamp=NOW_MS,
    producer_id=7,
    producer_epoch=0,
    base_sequence=0,
    record_count=1,
)


def config_of(*, log_append_time: bool = False) -> TopicConfig:
    return TopicConfig(
        max_message_bytes=SIZE_MAX,
        timestamp_before_max_ms=BEFORE_MS,
        timestamp_after_max_ms=AFTER_MS,
        needs_keys=False,
        deletes=True,
        log=LogConfig(log_append_time=log_append_time),
        backlog=BacklogConfig(),
        target=None,
    )


def around(*limits: int) -> st.SearchStrategy[int]:
    """Values at the limits of rules, and just beside them."""
    return st.sampled_from(sorted({limit + beside for limit in limits for beside in (-1, 0, 1)}))


NUMBERS = around(batch.NO_PRODUCER, 0)
TIMES = around(0, NOW_MS - BEFORE_MS, NOW_MS + AFTER_MS)
LENGTHS = around(batch.LENGTH_MIN, SIZE_MAX - batch.LENGTH_END)
FIELDS: dict[str, st.SearchStrategy[int]] = {
    "length": LENGTHS,
    "magic": around(batch.MAGIC),
    "attributes": st.integers(0, batch.CODEC_MASK)
    | st.sampled_from([1 << bit for bit in range(3, 15)])
    | st.integers(0, batch.CODEC_MASK).map(lambda codec: codec | batch.TRANSACTIONAL),
    "base_timestamp": TIMES,
    "max_timestamp": TIMES,
    "producer_id": NUMBERS,
    "producer_epoch": NUMBERS,
    "base_sequence": NUMBERS,
}


@st.composite
def headers(draw: st.DrawFn) -> BatchHeader:
    """Usual ones, but for a few fields."""
    names = draw(st.lists(st.sampled_from(sorted(FIELDS)), min_size=1, max_size=2))
    return USUAL._replace(**{name: draw(FIELDS[name]) for name in names})


def is_refused(header: BatchHeader, size: int, config: TopicConfig, version: int) -> bool:
    try:
        check_header(header, size, config, version, NOW_MS)
    except (Refused, CorruptBatch):
        return True
    return False


@settings(max_examples=1000)
@given(
    header=headers(),
    surplus=st.sampled_from([0, 0, 0, -1, 1]),
    version=around(ZSTD_FROM),
    log_append_time=st.booleans(),
)
def test_a_header_that_is_usual_is_refused_by_no_rule(
    header: BatchHeader, surplus: int, version: int, log_append_time: bool
) -> None:
    config, size = config_of(log_append_time=log_append_time), header.size + surplus
    for attributes in (CODECS, TRANSACTIONAL_CODECS):
        if is_usual(header, size, config, version, NOW_MS, attributes):
            assert not is_refused(header, size, config, version)
            assert header.is_transactional is (attributes is TRANSACTIONAL_CODECS)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"length": batch.LENGTH_MIN},
        {"length": SIZE_MAX - batch.LENGTH_END},
        {"attributes": 4},
        {"attributes": 4 | batch.TRANSACTIONAL},
        {"base_timestamp": NOW_MS - BEFORE_MS},
        {"base_timestamp": -1},
        {"max_timestamp": NOW_MS + AFTER_MS},
        {"producer_id": batch.NO_PRODUCER, "producer_epoch": -1, "base_sequence": -1},
    ],
)
def test_a_header_at_the_limit_of_a_rule_is_usual(changed: dict[str, int]) -> None:
    header = USUAL._replace(**changed)
    expected = TRANSACTIONAL_CODECS if header.is_transactional else CODECS
    assert is_usual(header, header.size, config_of(), ZSTD_FROM, NOW_MS, expected)
    assert not is_refused(header, header.size, config_of(), ZSTD_FROM)


@pytest.mark.parametrize(
    "changed",
    [
        {"length": batch.LENGTH_MIN - 1},
        {"length": SIZE_MAX - batch.LENGTH_END + 1},
        {"magic": 1},
        {"attributes": 5},
        {"attributes": batch.LOG_APPEND_TIME},
        {"attributes": batch.TRANSACTIONAL, "producer_id": batch.NO_PRODUCER},
        {"attributes": batch.TRANSACTIONAL | 5},
        {"attributes": batch.CONTROL},
        {"base_timestamp": NOW_MS - BEFORE_MS - 1},
        {"max_timestamp": NOW_MS + AFTER_MS + 1},
        {"producer_id": -2},
        {"producer_epoch": -1},
        {"base_sequence": -1},
    ],
)
def test_a_header_beyond_the_limit_of_a_rule_is_refused_by_both(changed: dict[str, int]) -> None:
    header = USUAL._replace(**changed)
    for attributes in (CODECS, TRANSACTIONAL_CODECS):
        assert not is_usual(header, header.size, config_of(), ZSTD_FROM, NOW_MS, attributes)
    assert is_refused(header, header.size, config_of(), ZSTD_FROM)


def test_zstd_is_refused_by_both_where_the_version_is_too_old() -> None:
    header = USUAL._replace(attributes=4)
    assert not is_usual(header, header.size, config_of(), ZSTD_FROM - 1, NOW_MS)
    assert is_refused(header, header.size, config_of(), ZSTD_FROM - 1)
