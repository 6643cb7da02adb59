"""`tailrace group`.

commands    list, show, reset, copy, delete
groups      requests about groups: members, committed offsets, lag; and changes to them
partitions  partitions as options name them: `orders`, `orders:0,2`
reset       the plan of a reset: from which offset to which
delete      the plan of a deletion: a group, or some of its offsets
view        rows and details, for people or as JSON
"""
