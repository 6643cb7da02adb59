"""Groups of consumers: who belongs to one, who reads what, and how far each group has come.

Read in this order:

    timers.py       deadlines, and the clock that they go by
    members.py      a member, and what it asks for when it joins
    saving.py       how a group becomes a record, and a member comes back from one
    classic.py      one group: the state machine of joining, assigning, leaving and falling silent
    records.py      what the log of groups says, in Kafka's own formats
    offsets.py      how far groups have come
    log.py          the log of groups, `__consumer_offsets`: written, flushed, and read at the start
    coordinator.py  all groups: decide, append, replay, answer when flushed
    subscription.py what members tell each other, as far as the broker looks at it

A group is kept by its log, and everything in memory is a replay of it. What is not in the log is who waits for an
answer and for how long: after a restart members go on with the generation they have.
"""
