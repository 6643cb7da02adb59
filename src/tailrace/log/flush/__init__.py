"""Brings appended records to disk, for many logs.

queue           which caller waits for which offset, and which log is flushed next
journal         the journal, open for writing (its format is in `log/files/journal_file`)
journal_write   one journal write, with appended batches of several logs, as a job
"""
