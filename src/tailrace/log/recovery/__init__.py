"""Opening a log as a stop or a crash has left it.

recovery       the passes, in order; `open_log` and `recover`
segment_walk   one segment during the scan
tail           tells a lost write from damage at the end of a log
epoch_check    compares the checkpoint of the leader epochs with the batches
"""
