"""The manifest: what is written is read, and no byte of it can change unnoticed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.backup.manifest import BadManifest, KnownSegments, Manifest, StoredFile, StoredLog, StoredSegment

offsets = st.integers(0, 1 << 62)
hexes = st.sampled_from(["00" * 32, "ab" * 32, "0f" * 32])
files = st.builds(
    StoredFile,
    st.sampled_from(["00000000000000000000.log", "00000000000000000000.sums", "00000000000000000009.snapshot"]),
    offsets,
    hexes,
)
segments = st.builds(StoredSegment, offsets, offsets, st.lists(files, min_size=1, max_size=2).map(tuple))
logs = st.builds(
    StoredLog,
    name=st.sampled_from(["orders-0", "a.b_c-12", "__tailrace_metadata-0"]),
    topic_id=st.none() | hexes,
    start_offset=offsets,
    end_offset=offsets,
    recovery_point=st.none() | offsets,
    epochs=st.none() | st.lists(st.tuples(offsets, offsets), max_size=2).map(tuple),
    segments=st.lists(segments, max_size=2).map(tuple),
    snapshots=st.lists(files, max_size=2).map(tuple),
    gaps=st.none() | files,
)
manifests = st.builds(
    Manifest,
    id=st.just("20261116T101500.000Z"),
    source=st.text(),
    directory_id=hexes,
    data_format=st.integers(1, 9),
    began_ms=offsets,
    ended_ms=offsets,
    tailrace=st.just("1.0"),
    copied_bytes=offsets,
    logs=st.lists(logs, max_size=2),
    damage=st.lists(st.fixed_dictionaries({"file": st.text(), "position": offsets}), max_size=2),
)


@settings(max_examples=20)
@given(manifests)
def test_what_is_written_is_read(manifest: Manifest) -> None:
    assert Manifest.decode(manifest.encode()) == manifest


@settings(max_examples=40)
@given(manifests, st.data())
def test_a_byte_that_changed_is_noticed_or_means_the_same(manifest: Manifest, data: st.DataObject) -> None:
    spoilt = bytearray(manifest.encode())
    position = data.draw(st.integers(0, len(spoilt) - 1))
    spoilt[position] ^= data.draw(st.integers(1, 255))
    try:
        read = Manifest.decode(bytes(spoilt))
    except BadManifest:
        return
    assert read == manifest  # a blank at the end, or another way to write the same letter


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b'{"kind": "tailrace backup"}', b'{"kind": 5}'])
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(BadManifest):
        Manifest.decode(data)


def test_one_of_a_later_release_is_refused_by_its_version() -> None:
    with pytest.raises(BadManifest, match="version 2, and this release knows 1"):
        Manifest.decode(b'{"kind": "tailrace backup", "version": 2, "what": "nobody knows"}')


def test_a_segment_is_known_by_its_topic_its_place_its_size_and_its_sums() -> None:
    log, checksums = (
        StoredFile("00000000000000000000.log", 100, "aa"),
        StoredFile("00000000000000000000.sums", 88, "bb"),
    )
    segment = StoredSegment(0, 10, (log, checksums))
    known = KnownSegments()
    known.add("id", "orders-0", segment)
    known.add("id", "orders-1", StoredSegment(0, 10, (log,)))
    assert known.find("id", "orders-0", 0, 100, "bb") is segment
    assert known.find("other", "orders-0", 0, 100, "bb") is None
    assert known.find("id", "orders-0", 0, 101, "bb") is None
    assert known.find("id", "orders-0", 0, 100, "cc") is None
    assert known.find("id", "orders-1", 0, 100, "") is None
