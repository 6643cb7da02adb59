"""Owns the flush scheduler: when a flush begins, and whether the loop or a thread waits for it. In reading order:

flusher    begins flushes and journal writes, and sends the responses that waited for them
pace       measures how fast the disk is, which decides what waits for a journal write
linux_aio  syncs large files without a thread, by Linux' asynchronous I/O
"""
