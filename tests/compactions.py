"""Compacting a log in a test: all steps of a pass, one after the other, here or in a process of its own."""

from tailrace.log.compaction.jobs import BeginPass, Compaction, EndPass, NextGroup
from tailrace.log.compaction.messages import CleanedGroup, CleanerSettings, PassFailed, PassResult
from tailrace.log.compaction.passes import LocalPass
from tailrace.log.compaction.planning import cleanable
from tailrace.log.log import Log
from tailrace.records.batch import split
from tailrace.records.record import Record, decode_records


def compact(
    log: Log, now_ms: int, settings: CleanerSettings | None = None, begin_pass: BeginPass | None = None
) -> PassResult | PassFailed | None:
    """One pass over what is on disk of the log; None where there is nothing to do."""
    plan = cleanable(log.view, log.compacted_to, log.recovery_point_on_disk)
    begin = begin_pass or (lambda spec: LocalPass(log.files, spec))
    compaction = Compaction(log, plan, now_ms, settings, begin)
    try:
        while True:
            step = NextGroup(compaction)
            step.run()
            said = step.finish()
            if not isinstance(said, CleanedGroup):
                if isinstance(said, PassResult):
                    log.compacted_to = said.end
                return said
            swap = compaction.begin_swap(said)
            assert swap is not None
            swap.run()
            swap.finish()
    finally:
        end = EndPass(compaction)
        end.run()
        end.finish()


def batches_of(log: Log, offset: int | None = None) -> list[bytes]:
    """Every batch that readers see, from an offset on."""
    batches = []
    at = log.start_offset if offset is None else offset
    while (piece := log.read(at, 1 << 20)) is not None:
        with piece:
            data, at = piece.read(), piece.next_offset
        batches += [data[position : position + header.size] for position, header in split(data)]
    return batches


def records_of(log: Log, *, committed: bool = False) -> list[Record]:
    """Every record that readers see, markers apart; those of committed transactions alone, if asked."""
    aborted = log.aborted_transactions(log.start_offset, log.high_watermark) if committed else []
    records = []
    for data in batches_of(log):
        for position, header in split(data):
            is_aborted = header.is_transactional and any(
                one.producer_id == header.producer_id and one.first_offset <= header.base_offset <= one.last_offset
                for one in aborted
            )
            if not header.is_control and not is_aborted:
                records += decode_records(data, position)
    return records
