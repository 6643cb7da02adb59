"""Transactions: records in several partitions, and committed offsets, that count together or not at all.

Read in this order:

    state.py        one transactional id: its state table, and the decisions on it; pure
    records.py      the records of the transaction log, `__transaction_state`, in Kafka's own format
    log.py          the transaction log: appended, flushed, and read at the start
    markers.py      the markers that end a transaction in its partitions
    completion.py   carries a decision out: markers in all partitions, then the record of the end
    responses.py    responses that wait for the end of a transaction
    coordinator.py  all transactional ids: decide, append, replay, respond when that is on disk
    admission.py    which batches and offsets of producers belong to an open transaction
    orphans.py      at the start: aborts the transactions of partitions that the coordinator does not know

A transaction goes these ways, each step on disk before the next one:

    AddPartitionsToTxn, or the first batch     Ongoing, with the partition, is appended to the transaction log
    Produce, TxnOffsetCommit                   batches are appended to their partitions; consumers of committed records
                                               stop before them
    EndTxn                                     PrepareCommit or PrepareAbort is appended: the decision
                                               a marker is appended to each partition: consumers go on
                                               CompleteCommit or CompleteAbort is appended, and EndTxn is answered

A crash between these steps leaves a decision whose markers are written at the next start, or none, and then the
transaction is still open, or is aborted. Complete need not be on disk for the response: without it the start finds the
decision, and writes the markers again where they are missing.

No transaction hangs: at a start, when the markers of all decisions have been written, every transaction that is open in
a partition and that the coordinator does not know as open is aborted.
"""
