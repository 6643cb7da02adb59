"""Where snapshots of a cluster come from. Read in this order:

connection      connects to a cluster, and names the errors
published       reads the topics in which a broker or a monitor publishes facts
unread          the first record that a group has not read
kafka_facts     snapshots of any Kafka
tailrace_facts  snapshots of a broker of ours, with what it publishes
"""
