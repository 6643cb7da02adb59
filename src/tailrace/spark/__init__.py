"""Kafka's topics in Spark, without a jar: needs the `spark` extra, and of a broker nothing but its wire.

    schema    the columns that Spark's own `kafka` format has, as Arrow types
    columns   one fetch of record batches as Arrow batches of these columns
    spans     of timestamps, and of offsets
    arrays    Arrow arrays from what the kernels found
    kernel    the compiled loops over bytes, behind both

Nothing is imported here, so that a driver that only plans does not wait for the compiler.
"""
