"""The topics, partitions and offsets that a verb works on: from what its options say to what the broker has.

selection         topics by name or pattern
partition_choice  partitions as options name them: `orders`, `orders:0,2`
positions         `earliest`, `latest`, an offset, `last:N` or a time, parsed
offsets           offsets of many partitions, requested from brokers
ranges            positions resolved to a range of offsets per partition
published         topics in which a tailrace broker publishes what it knows
"""
