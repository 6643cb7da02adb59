"""How a log is laid out: names and values that all other folders share. No input or output.

names      partitions and their files, as Kafka calls them
config     the settings of one log
offsets    offsets as distinct types, and the bounds of a log
damage     damaged ranges
errors     the errors that a log raises
"""
