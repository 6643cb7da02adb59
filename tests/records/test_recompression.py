"""A batch in another codec: the same records under the same header, and nothing that was wrong is hidden by it."""

import random

import pytest
from batches import batch, batch_of, flip
from hypothesis import given
from hypothesis import strategies as st

from tailrace.records.batch import HEADER_SIZE, CorruptBatch, check, seal
from tailrace.records.compression import Codec, compress
from tailrace.records.errors import CorruptRecords, TooLarge
from tailrace.records.recompression import Target, recompress, records_limit
from tailrace.records.record import decode_records


@pytest.mark.parametrize("before", Codec)
@pytest.mark.parametrize("after", Codec)
def test_the_records_stay_and_so_does_the_header_but_for_codec_length_and_crc(before: Codec, after: Codec) -> None:
    original = batch(
        20, base_offset=7, leader_epoch=3, codec=before, producer_id=5, producer_epoch=1, base_sequence=9,
        transactional=True, log_append_time=1_700_000_000_123,
    )  # fmt: skip
    converted = recompress(original, Target(after))
    old, new = check(original), check(converted)
    assert new.codec == after
    assert list(decode_records(converted)) == list(decode_records(original))
    assert new == old._replace(length=new.length, crc=new.crc, attributes=old.attributes & ~7 | after)


@given(payload=st.binary(min_size=7, max_size=5000), before=st.sampled_from(Codec), after=st.sampled_from(Codec))
def test_the_way_there_and_back_changes_nothing(payload: bytes, before: Codec, after: Codec) -> None:
    plain = batch_of(payload)
    there = recompress(recompress(plain, Target(before)), Target(after))
    assert recompress(there, Target(Codec.NONE)) == plain


@pytest.mark.parametrize(("codec", "low", "high"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 1, 12), (Codec.ZSTD, -50, 15)])
def test_a_level_is_obeyed(codec: Codec, low: int, high: int) -> None:
    words = [b"%08x" % n for n in random.Random(1).sample(range(1 << 32), 500)]
    payload = b" ".join(random.Random(2).choices(words, k=10_000))
    sizes = [len(recompress(batch_of(payload), Target(codec, level))) for level in (low, high)]
    assert sizes[0] > sizes[1]


def test_a_damaged_batch_is_not_sealed_anew() -> None:
    with pytest.raises(CorruptBatch, match="CRC"):
        recompress(flip(batch(3), 8 * 80), Target(Codec.ZSTD))


def test_what_cannot_be_decompressed_is_said_to_be_damaged() -> None:
    with pytest.raises(CorruptRecords):
        recompress(batch_of(b"no gzip at all", attributes=Codec.GZIP), Target(Codec.ZSTD))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_does_not_go_off(codec: Codec) -> None:
    bomb = batch_of(compress(codec, bytes(3 << 20)), attributes=codec)
    with pytest.raises(TooLarge):
        recompress(bomb, Target(Codec.LZ4), limit=2 << 20)
    assert len(recompress(bomb, Target(Codec.NONE), limit=3 << 20)) == HEADER_SIZE + (3 << 20)


def test_records_may_take_16_mib_or_the_batch_limit_up_to_the_limit_of_all_readers() -> None:
    assert [records_limit(size) for size in (0, 1 << 20, 17 << 20, 1 << 30)] == [16 << 20, 16 << 20, 17 << 20, 64 << 20]
    bomb = batch_of(compress(Codec.ZSTD, bytes((16 << 20) + 1)), attributes=Codec.ZSTD)
    with pytest.raises(TooLarge):
        recompress(bomb, Target(Codec.LZ4))


def test_a_count_that_cannot_be_true_is_found_out_while_it_can_be() -> None:
    liar = batch_of(b"too few", record_count=1000)
    seal(liar)
    with pytest.raises(CorruptRecords, match="1000 records"):
        recompress(liar, Target(Codec.ZSTD))
