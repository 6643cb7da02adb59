"""What measures are made of. Imports no measure.

measure          rounds that take turns, samples, figures and what is demanded of them
place            the temporary directory of a run
batches          record batches of a given size
bare_disk        writes and syncs without a log, to compare with
process_tree     CPU time and memory of a process and its children
broker_process   our broker as a process
raw_connection   frames over a socket, for hot loops
requests         Produce and Fetch over raw connections
topics           topics by an admin client, on any broker
runner           runs measures one after the other and shows progress
report           results as a table and as JSON
"""
