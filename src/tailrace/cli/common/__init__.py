"""What the verbs share.

output       failures and exit codes, warnings, tables, progress bars, numbers and times as text
options      options that mean the same in every verb
client       the names of confluent-kafka that verbs use, imported only by verbs that run
connection   how verbs reach a broker: options, clients, errors as exit codes
selection    topics by name or pattern
positions    `earliest`, `latest`, an offset, `last:N` or a time, parsed
offsets      offsets of many partitions, requested from brokers
ranges       positions resolved to a range of offsets per partition
messages     a message as a line of JSON, and back
template     `tail --format`
broken_pipe  ends a verb quietly when the reader of its stdout is gone
"""
