"""Record batches as Arrow columns, without a Python object per record.

schema         the columns of Spark's `kafka` format, as Arrow types
ranges         a range of offsets or timestamps
decoder        one fetch of record batches to Arrow batches
decode_kernel  the compiled loops over the bytes of a fetch
arrays         Arrow arrays from what the kernels found
compiler       how kernels are compiled by numba, and cached (also those of `sink/`)
"""
