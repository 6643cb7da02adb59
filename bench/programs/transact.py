"""Many transactional producers at once, in threads.

    python -m bench.programs.transact HOST PORT TOPIC PRODUCERS RATE SECONDS

Each producer writes to a partition of its own, one message a transaction; all of them together make RATE transactions a
second. Prints "started" once they have begun, and at the end the number of transactions.
"""

import sys
import threading
import time

from bench.harness.transactions import TransactionalProducer


def main() -> None:
    host, port, topic, producers, rate, seconds = sys.argv[1:]
    count = int(producers)
    done = [0] * count
    ready = threading.Barrier(count + 1)
    until: list[float] = []

    def work(number: int) -> None:
        with TransactionalProducer(host, int(port), f"{topic}-{number}", topic, number) as producer:
            producer.transact(1)
            ready.wait()
            due, pause = time.perf_counter() + number / float(rate), count / float(rate)
            while (now := time.perf_counter()) < until[0]:
                if due > now:
                    time.sleep(min(due - now, max(until[0] - now, 0)))
                    continue
                due += pause
                producer.transact(1)
                done[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    until.append(float("inf"))
    ready.wait()
    until[0] = time.perf_counter() + float(seconds)
    print("started", flush=True)
    for thread in threads:
        thread.join()
    print(sum(done))


if __name__ == "__main__":
    main()
