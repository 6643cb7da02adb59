"""`tailrace tail`.

command       the options
follower      reads given partitions, to an end or for good
group_member  reads as a member of a consumer group
printer       messages as lines: values, JSON, templates, columns
"""
