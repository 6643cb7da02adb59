"""`tailrace group`.

commands    list, show, reset, copy, delete
groups      requests about groups: members, committed offsets, lag; and changes to them
reset       the plan of a reset: from which offset to which
delete      the plan of a deletion: a group, or some of its offsets
history     positions that groups have held
settings    set: the configs of a group
share       share groups, which the admin client does not have
epochs      epochs and targets of consumer groups, and what members have yet to give up
stuck       partitions in which messages wait and nothing is committed
backlog     what a rewind does to producers
view        rows and details, for people or as JSON
"""
