"""Client quotas: limits on what users, clients and addresses may do per second.

Read in this order:

    client_quotas.py  the limits, and the meter that computes throttle times
    mutations.py      the quota for creating and deleting partitions
"""
