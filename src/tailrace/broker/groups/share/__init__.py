"""The membership of share groups (KIP-932): which members read which partitions. Several members can have the same one.

Read in this order:

    share_state.py  what the membership needs of the states of partitions, which are kept elsewhere
    state.py        a group and its members, as replayed from the log
    assignor.py     who shall have which partitions: `simple`
    draft.py        the changes that one event makes to a group
    heartbeat.py    decides ShareGroupHeartbeat, and the ends of sessions
    group.py        a group as the coordinator sees it

A share group is a consumer group without revocation: no partition has an owner, so that a member adopts its target with
its next heartbeat.
"""
