"""Opens a log after a stop or a crash.

recovery       the passes, in order; `open_log` and `recover`
log_scan       pass 4: restores batches from the journal, and scans everything behind the recovery point
segment_walk   one segment during the scan
epoch_check    compares the checkpoint of the leader epochs with the batches
state          the state of a log between the passes, and the report
"""
