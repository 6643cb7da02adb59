"""The state of a log's producers.

producer_state    detects duplicates, gaps, fenced producers, open transactions; its `.snapshot` file
refused_batches   refused batches of unknown producers, remembered for a while
replay            rebuilds producer state from a snapshot and the batches behind it
"""
