"""Bringing appended records to disk for many logs.

queue           which caller waits for which offset, and which log is flushed next
journal         the journal, open for writing (format and reading: `log/files/journal_file`)
journal_write   one journal write, of what several logs have appended, as a job
"""
