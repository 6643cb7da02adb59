"""The consumer group protocol (KIP-848): the broker computes assignments, and members adopt them one by one.

Read in this order:

    state.py            a group and its members, as replayed from the log
    assignors.py        who shall have which partitions: `uniform` and `range`
    reconciliation.py   how one member gets from what it has to what it shall have
    draft.py            the changes that one event makes to a group
    heartbeat.py        decides ConsumerGroupHeartbeat, and the ends of sessions
    classic_members.py  members of the classic protocol in such a group
    migration.py        a classic group becomes a consumer group, and back
    patterns.py         subscriptions by regular expression
    catalog.py          the topics of this broker, as groups see them
    topic_index.py      which groups read a topic
    group.py            a group as the coordinator sees it
"""
