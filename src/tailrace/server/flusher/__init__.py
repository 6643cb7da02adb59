"""Owns the flush scheduler: when a flush begins, and whether the loop or a thread waits for it. In reading order:

flusher     begins flushes and journal writes, and has the responses sent that waited for them
pace        measures how quick the disk is, which decides what waits for a journal write
linux_aio   syncs large files without a thread: Linux does them by itself
"""
