"""Configs: which keys there are, what values they take, and where the current value of each comes from.

Read in this order:

    keys.py          one config key: name, type, default, valid values, documentation
    rows.py          how a row of the tables is written
    group_tables.py  the tables of keys of groups, and of brokers for all groups
    durations.py     what share.auto.offset.reset may be
    tables.py        the tables of all other keys, of topics and of brokers
    ignored.py       Kafka's broker configs that have no effect here
    groups.py        the values of groups
    share.py         those of a share group, typed
    registry.py      the values: of the file, of flags, of the topics, changed at run time
"""
