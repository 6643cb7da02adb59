"""Record batches, format v2: bytes in, values out, and back. Pure: no files, no sockets, no clock.

Read in this order:

    batch          the header of a batch, its CRC, and the fields that a broker stamps; all that the hot path needs
    record         the records inside a batch: decode, encode, find by timestamp
    decoders       the compiled record parser and its Python twin, behind `record`
    compression    the codecs by name, with bounded output
    codecs         the compression libraries, behind `compression`
    recompression  a batch in another codec
    raw_records    records as bytes, for compaction, which drops some and keeps the others unchanged
    control        the markers that end transactions
    checksum       CRC-32C
    errors         one family of exceptions for all of it

Importing one of these is cheap: the compiled parser is imported when the first record is decoded, and the compression
libraries with the first compressed batch.
"""
