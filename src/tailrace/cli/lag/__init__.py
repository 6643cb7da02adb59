"""`tailrace lag`: how far groups are behind, what they have lost, and when they will lose messages.

command  the verb
source   what the monitor knows about a cluster, with failures as exit codes
words    durations and outlooks in words
table    the table of groups
losses   --losses
buffers  --buffers
"""
