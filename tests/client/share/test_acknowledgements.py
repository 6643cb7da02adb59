"""Outcomes of records, as a request has them."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tailrace.client.share.acknowledgements import Acknowledgement, Outbox, Outcome, SharePartition, Terms, topics_of

A, B = SharePartition(b"a" * 16, 0), SharePartition(b"a" * 16, 1)
C = SharePartition(b"c" * 16, 0)
OUTCOMES = st.sampled_from([Outcome.ACCEPT, Outcome.RELEASE, Outcome.REJECT, Outcome.GAP])


def one(offset: int, outcome: Outcome = Outcome.ACCEPT, partition: SharePartition = A) -> Acknowledgement:
    return Acknowledgement(partition, offset, offset, outcome)


@given(st.dictionaries(st.tuples(st.sampled_from([A, B, C]), st.integers(0, 30)), OUTCOMES))
def test_a_request_has_each_offset_once_in_ascending_batches(
    given_outcomes: dict[tuple[SharePartition, int], Outcome],
) -> None:
    topics = topics_of(one(offset, outcome, partition) for (partition, offset), outcome in given_outcomes.items())
    found = {}
    assert len({topic.topic_id for topic in topics}) == len(topics)
    for topic in topics:
        for partition in topic.partitions:
            batches = partition.acknowledgement_batches
            for before, after in pairwise(batches):
                assert before.last_offset < after.first_offset
                is_neighbour = before.last_offset + 1 == after.first_offset
                assert not (is_neighbour and before.acknowledge_types == after.acknowledge_types)
            for batch in batches:
                (outcome,) = batch.acknowledge_types
                for offset in range(batch.first_offset, batch.last_offset + 1):
                    found[SharePartition(topic.topic_id, partition.partition_index), offset] = outcome
    assert found == given_outcomes


def test_a_request_carries_what_waits_under_the_same_terms() -> None:
    outbox = Outbox()
    late = Terms(delay_ms=100)
    outbox.put(one(1))
    outbox.put(one(2, Outcome.RELEASE), late)
    outbox.put(one(3))
    assert outbox.take() == (Terms(), [one(1), one(3)])
    assert outbox.take() == (late, [one(2, Outcome.RELEASE)])
    assert not outbox


def test_a_later_outcome_replaces_an_earlier_one_that_was_not_sent() -> None:
    outbox = Outbox()
    outbox.put(one(1, Outcome.RENEW), Terms(is_renewal=True))
    outbox.put(one(1))
    outbox.forget(A, 2)
    assert outbox.take() == (Terms(), [one(1)])
    assert not outbox


def test_an_acknowledgement_that_is_to_be_alone_has_a_request_of_its_own() -> None:
    outbox = Outbox()
    alone = Terms(is_alone=True)
    for offset in (1, 2):
        outbox.put(one(offset), alone)
    assert outbox.take() == (alone, [one(1)])
    assert outbox.take() == (alone, [one(2)])
