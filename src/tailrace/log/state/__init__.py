"""What a log remembers of its producers.

producer_state    duplicates, gaps, zombies, open transactions; its `.snapshot` file
refused_batches   refused batches of unknown producers, remembered for a while
replay            producer state rebuilt from a snapshot and the batches behind it
"""
