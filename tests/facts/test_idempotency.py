"""Records of requests with keys survive their encoding; anything else is refused."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.facts.document import UnreadableFact
from tailrace.facts.idempotency import KeyedRequest, decode, key_of

numbers = st.integers(0, (1 << 63) - 1)
requests = st.builds(
    KeyedRequest,
    key=st.text(max_size=20),
    at=numbers,
    request=st.text("0123456789abcdef", max_size=64),
    messages=st.lists(st.tuples(numbers, numbers), max_size=5).map(tuple),
)


@given(requests)
def test_a_request_survives(request: KeyedRequest) -> None:
    assert decode(request.encode()) == request
    assert request.record_key == key_of(request.key)


@pytest.mark.parametrize(
    "fields",
    [
        {"version": 2, "key": "a", "at": 1, "request": "", "messages": []},
        {"version": 1, "key": "a", "at": 1, "request": ""},
        {"version": 1, "key": "a", "at": 1, "request": "", "messages": [[1]]},
        {"version": 1, "key": "a", "at": "soon", "request": "", "messages": []},
        {"version": 1, "at": 1, "request": "", "messages": []},
        [],
    ],
)
def test_what_is_no_such_record_is_refused(fields: object) -> None:
    with pytest.raises(UnreadableFact):
        decode(json.dumps(fields).encode())


@given(st.binary(max_size=60))
def test_no_bytes_break_it(value: bytes) -> None:
    with suppress(UnreadableFact):
        decode(value)
