"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Read in this order:

    members.py            one member, and its delayed responses
    state.py              the states of a group, and what it needs from the coordinator
    group.py              one group: the state machine
    snapshots.py          a group as a record, and its members from one
    subscription.py       the topics of a consumer's subscription
    consumer_protocol.py  subscriptions and assignments of consumers, as bytes
"""
