"""Reads a file of batches that may be torn or corrupt.

scan       yields batches as long as each one is intact and has the expected offset
resync     finds the next trustworthy batch after corrupt bytes
walk       both in one: yields sound batches and damaged ranges, to the end of the file
restore    writes batches that only the journal has back to the segment after a crash
"""
