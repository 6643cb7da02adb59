"""`.replay`: a pipeline over history, with the live run left alone.

replay         plans and runs a replay, as a batch or exactly as the live run
replay_range   a closed range of topics: its bounds, its size, and what is missing from it
targets        where a replay may write
repeatability  whether a query gives the same result again, told from its plan
exact_replay   the recorded batches of the live run, run again and compared
row_counts     rows counted while they pass
"""
