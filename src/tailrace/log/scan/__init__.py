"""Reading a file of batches that may be torn or corrupt.

scan       batches for as long as each is intact and the one that is due
resync     the next trustworthy batch after corrupt bytes
walk       both in one: sound batches and damaged ranges, to the end of the file
restore    writes back what only the journal has after a crash
"""
