"""Record batches, format v2: bytes in, values out, and back. Pure: no files, no sockets, no clock.

    batch           the header, the CRC, and what a broker stamps; all the hot path needs
    record          the records inside a batch: decoding, encoding, time lookup
    record_decoder  the compiled parser and its plain twin, behind `record`
    compression     the codecs, with bounded output; `codecs` has their libraries
    control         the markers that end transactions
    checksum        CRC-32C
    errors          one family of exceptions for all of it

Importing one of these costs little: the compiled parser is imported when the first record is decoded, and the libraries
of the codecs with the first batch that is compressed.
"""
