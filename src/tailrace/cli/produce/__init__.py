"""`tailrace produce`.

command      the options
transfer     one run: input lines to messages, with a count of how far it got
input_lines  lines of a file, a pipe or a terminal, with their positions
line_parser  a line as a message
sender       sends messages, and tracks which lines are acknowledged
refusals     why a message is not acknowledged, in words
bookmark     how far a file was sent, on disk, for `--resume`
"""
