"""Configs: which keys there are, what values they take, and where the current value of each comes from.

Read in this order:

    keys.py      one config key: name, type, default, valid values, documentation
    tables.py    the tables of all keys, of topics, of groups and of brokers
    ignored.py   Kafka's broker configs that have no effect here
    groups.py    the values of groups
    registry.py  the values: of the file, of flags, of the topics, changed at run time
"""
