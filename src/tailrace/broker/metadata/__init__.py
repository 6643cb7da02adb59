"""The metadata of the cluster: its log, the state replayed from it, and the decisions that change it.

Read in this order:

    records.py             the records of the metadata log
    state.py               the state: topics, configs, quotas, producer ids
    internal_topics.py     batches of records in the logs of internal topics
    log.py                 the metadata log: append, replay, wait for the flush
    topic_changes.py       decides changes of topics
    config_changes.py      decides changes of configs
    quota_changes.py       decides changes of client quotas
    logger_levels.py       levels of loggers, which are not stored
    producer_ids.py        allocates producer ids
    compaction_history.py  which logs were never compacted
    restore.py             metadata that a repair has given up, restored from the partitions' logs
"""
