"""What the verbs share.

output          failures and exit codes, warnings, tables, progress bars, numbers and times as text
help            help and usage of all verbs, and suggestions for words that other tools have
options         options that mean the same in every verb
client          the names of confluent-kafka that verbs use, imported only by verbs that run
connection      how verbs reach a broker: options, clients, errors as exit codes
admin_requests  requests that confluent-kafka does not have, made by our private client
config_file     the file of `--config`
configs         changes of configs: `--set K=V`, `--unset K`; where values come from, in words
units           values with units: `1h`, `10MB`
topics/         topics, partitions and offsets: from what options say to what the broker has
messages        a message as a line of JSON, and back
template        `tail --format`
broken_pipe     ends a verb quietly when the reader of its stdout is gone
"""
