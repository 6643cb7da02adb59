"""Figures about consumer groups, computed from values: no clock, no connection. Read in this order:

forecast  when a reader loses messages
snapshot  what is known about a cluster at one moment
rates     averages and extremes of what grows
buffers   for how many seconds of messages there is room
lag       how far groups are behind, from one snapshot after the other
report    the lag of groups as one report
losses    joins the loss ledger to what each group has missed
"""
