"""The formats of the files beside the batches, with reading and writing them.

checkpoints          Kafka's small text files, and the names of those of a data directory
leader_epochs        `leader-epoch-checkpoint`
partition_metadata   `partition.metadata`: the topic id
index                `.index`, `.timeindex` and `.txnindex` of a segment
checksums            the checksum file of a segment
recorded_gaps        offsets that a repair has given up
swap_file            replaces segments by compacted ones, at once or not at all
journal_file         the journal's format, and reading it after a crash (writing: `log/flush/journal`)
directory_state      the state of each log according to the checkpoints of a data directory, at a start
"""
