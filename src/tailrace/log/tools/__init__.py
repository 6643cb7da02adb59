"""Offline tools: they read logs without opening them. `cli/log` and `backup/` use them.

locate               the partitions under a path
survey               reads one partition from its first byte to its last
verify               finds everything that is wrong in a partition or a data directory
derived_files        checks the files beside a log against the log
compaction_history   whether a partition can ever have been compacted
lost_partitions      partitions that a checkpoint names and that have no segment
repair               plans a repair
repair_steps         carries out its steps
bit_flip             repairs a flipped bit that a checksum file proves
"""
