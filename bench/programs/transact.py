"""Many transactional producers at once, in threads.

    python -m bench.programs.transact HOST PORT TOPIC PRODUCERS RATE

Each producer writes to a partition of its own, one message a transaction; all of them together make RATE transactions a
second. Prints "started" once they have begun. They end with the standard input; then it prints how many there were in a
second.
"""

import sys
import threading
import time

from bench.harness.transactions import TransactionalProducer


def main() -> None:
    host, port, topic, producers, rate = sys.argv[1:]
    count = int(producers)
    done = [0] * count
    ready = threading.Barrier(count + 1)
    is_over = threading.Event()

    def work(number: int) -> None:
        with TransactionalProducer(host, int(port), f"{topic}-{number}", topic, number) as producer:
            producer.transact(1)
            ready.wait()
            due, pause = time.perf_counter() + number / float(rate), count / float(rate)
            while not is_over.wait(max(0.0, due - time.perf_counter())):
                due += pause
                producer.transact(1)
                done[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    ready.wait()
    start = time.perf_counter()
    print("started", flush=True)
    sys.stdin.read()
    is_over.set()
    elapsed = time.perf_counter() - start
    for thread in threads:
        thread.join()
    print(sum(done) / elapsed)


if __name__ == "__main__":
    main()
