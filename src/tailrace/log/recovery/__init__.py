"""Opening a log as a stop or a crash has left it.

recovery       the passes, in order; `open_log` and `recover`
log_scan       pass 4: the journal's batches restored, everything behind the recovery point scanned
segment_walk   one segment during the scan
epoch_check    compares the checkpoint of the leader epochs with the batches
state          what is known of a log between the passes, and the report
"""
