"""What operators see and change: configs, quotas, transactions, sizes on disk. No layers: no module imports another.

configs       configs of topics and brokers
quotas        quotas of users, client ids and addresses
transactions  transactional ids, and their open transactions
topics        topics that we need ourselves
log_dirs      sizes of partitions and disks
"""
