"""The benchmarks: how far tailrace is from the bare operating system, as ratios taken in one run.

    python -m bench                    all measures, in at most five minutes
    python -m bench --quick            the same with less of everything, in a minute
    python -m bench --only recovery    one of them; may be given several times
    python -m bench --spark            those of Spark instead: needs scripts/fetch-spark-connector, takes ten minutes
    python -m bench --upkeep           those of much history, and of compaction: 30 GB are written, which takes a while
    python -m bench --monitor          what the monitor takes, and takes from others: a quarter of an hour
    python -m bench --growth           how cost grows with partitions, connections, history and message size: 7 minutes
    python -m bench --queues           those of share groups: three minutes
    python -m bench --json FILE        writes the results, too
    python -m bench.peers              side by side with Apache Kafka and others: see there, and docs/BENCHMARKS.md
    python -m bench.flames             where the broker's time goes, as pictures: see there, and docs/PERFORMANCE.md
    python -m bench.guard              whether the hot paths became slower than they were: see there

    table       the measures by name
    measures/   what is measured
    harness/    what measures are made of: rounds, figures, places, broker processes, raw connections, the report
    programs/   clients and servers that measures start as processes
    peers/      the comparison with Apache Kafka, NATS, Redis and RabbitMQ
    guard/      the comparison with an earlier revision
    flames      flame graphs of the broker
    results/    the newest full run of `bench.peers`

Machines are shared and noisy, so no figure stands alone: what is measured and what it is measured against take turns
in one process (A B, B A, A B ...), each round gives one comparison, and the median of those is what counts. Where the
demand is absolute (so many a second) its better quartile counts, as noise only ever slows things down. A missed figure
is shown and does not fail the run; only a measure that crashes does.

The data lies in a temporary directory below `TAILRACE_BENCH_DIR`, or the system's own, and is removed at the end. It
should be a real disk: the report says which file system it was.

The file that `--json` writes, and `bench.peers` to bench/results, schema 2:

    schema          2
    started         when, ISO 8601 with offset
    seconds         how long the run took
    quick           whether it was a short run, which shows that it works and no more
    full            whether `bench.peers` ran its whole matrix
    host            python, optimized (whether its build was, which takes a third off), platform, cpus, load (of the
                    last minute, at the start), tailrace (version)
    place           file_system, device, real_disk (false: syncing proves nothing there), and fdatasync_us: p50
                    and p99 of a small write and an fdatasync there, before and after the measures
    peers           a list of those that ours was compared with, itself included; empty but for `bench.peers`:
        name        as in `baseline`
        version     or "none"
        durability  what an acknowledgement means there
        missing     null, or why it could not be had here
    figures         a list, in the order of the table:
        name        stable, for machines: measure/figure
        title       for people
        unit        of `ours` and `against`
        ours        a sample: median, low, high (the quartiles), count
        against     a sample, or null where nothing is compared
        baseline    what `against` is, or null
        compared    null, or a sample with `kind`: "ratio" (ours / against) or "difference" (ours - against, in `unit`),
                    of the rounds one by one: not the same as comparing the medians
        demanded    null for information only, or `of` ("ours", "ratio", "difference"), `bound` ("least", "most"),
                    `limit`, which must be met, and `aim`: null, or what would be better still
        verdict     "aim" (as good as aimed at), "ok" (as good as it must be), "missed" or "information"
        note        what one should know to read it; may be empty
    failures        a list of `measure` and `error`: what crashed, and why

Schema 1 had no `full`, `peers`, `fdatasync_us` and `aim`, and no verdict "aim".
"""
