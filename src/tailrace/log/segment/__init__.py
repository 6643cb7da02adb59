"""One segment: a file of batches, its indexes, and which of its bytes may be served.

segment         the segment itself: append, find, read, seal, truncate, remove
derived         its indexes and metadata, which can be rebuilt from it: loaded and saved
derived_cache   how many indexes of sealed segments stay in memory
save            the save of its indexes and checksums, for any thread
trust           which bytes were checked, and which were found damaged
slices          whole batches to send without decoding them, and where batches end
preallocation   disk blocks ahead of the end of the file
truncation      keeps truncated bytes aside
tail            distinguishes a lost write from damage at the end of a log
"""
