"""`tailrace serve`.

command  the options, as `--help` shows them
broker   reads plain options without typer, and runs the broker in this process
check    what `--check` prints
"""
