"""Fails a change that makes a hot path slower: the working tree against another revision, measured in one run.

    python -m bench.guard                 against the commit in bench/guard/base.txt
    BASE=main python -m bench.guard       against another revision
    python -m bench.guard --only append   one path; may be given several times

Each side runs its own `src` and its own `bench` (the base's are taken from git), in a process of its own
(`bench.guard.side`), so modules may move between the two. Paths and their limits are in `work.py`: most compare CPU
time, as the kernel counts it for the broker, which neighbours on the machine disturb little; two compare the wall clock
of one request in flight.

Noise is met by turns (ours, base, base, ours ...), by the median of the ratios of all rounds, and by brokers that are
started anew several times. A path over its limit is measured again, and fails only if all attempts exceed the limit.

    side      one side, as a process
    append    an append to a log, as a process
    work      the paths and their limits
    verdict   ratios and whether they fail
"""
