"""What happens to records that a group has not read: policies, holds, the loss ledger, published facts.

"Unread" means uncommitted: the broker knows a group by its commits. Only groups that a topic names in
`tailrace.backlog.groups` hold or slow it; every other group can only lose, and then the ledger says what.

    a deletion of records   `background/retention` asks `holds` how far it may go, deletes, and notes the deletion in
                            the `ledger`. Files go when the ledger is flushed (`Checkpointer`)
    an append               asks `gate` first: append, append and delay the response, or refuse
    a commit                moves the backlog of a named group, and ends what a group goes on missing

Read in this order:

    readers.py       what a kind of consumers tells about its positions
    group_reader.py  consumer groups as such a kind
    queue_reader.py  share groups as such a kind
    named_groups.py  where the groups stand that a topic names, and whether they still count
    measure.py       how many bytes lie behind a position, and how old they are; pure
    holds.py         what retention and the disk budget must not delete
    gate.py          whether an append is taken at once, taken and answered late, or refused
    delayed_acks.py  responses that are answered late
    policies.py      these together
    ledger.py        the loss ledger: every deletion, and the groups that had not read what was deleted
    resets.py        finds commits that move a group past unread records
    history.py       records the positions that groups have held
    segments.py      publishes the segments of partitions, and what decides when they go
"""
