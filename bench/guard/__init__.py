"""Whether a change made a hot path slower: the working tree against another revision, by CPU time, in one run.

    python -m bench.guard                 against HEAD, or its parent where src/ is as committed
    BASE=main python -m bench.guard       against another revision
    python -m bench.guard --only append   one path; may be given several times

Fails (exit status 1) where a path takes more than a tenth more than it did. CPU time is what the kernel counted for the
broker, or for the process that appends, and not what the clock said: neighbours on the machine disturb it little. What
is left of them is met by turns (ours, base, base, ours ...), by the median of the ratios of the rounds, and by brokers
that are started anew several times, as no two processes lie in memory alike. What looks slower is measured again, and
only what is slower each time fails.
"""
