"""What operators see and change: configs, quotas, sizes on disk. No layers: no module imports another.

configs   configs of topics and brokers
quotas    quotas of users, client ids and addresses
log_dirs  sizes of partitions and disks
"""
