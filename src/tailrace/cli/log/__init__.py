"""`tailrace log`: reads or repairs a data directory without a broker.

commands  verify and dump
dump      how records and batches are printed
repair    shows the plan of a repair, and carries it out
"""
