"""Writing rows to topics with Spark.

options        the options of a write
encoder        Arrow batches to record batches
encode_kernel  the compiled loops over the bytes that are written: partitions, sizes, records, fingerprints
writer         the rows of one task to their topics, at least once
exactly_once   one transaction per task and batch, with a marker that makes retries harmless
"""
