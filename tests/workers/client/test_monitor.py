"""The monitor: a lock that whoever waits gives away."""

from __future__ import annotations

import threading

from syft.workers.client.monitor import Monitor


def test_a_thread_that_waits_lets_another_one_in_and_is_woken_by_it():
    monitor, told = Monitor(), []

    def tell() -> None:
        with monitor:
            told.append("something")
            monitor.notify()

    other = threading.Thread(target=tell)
    with monitor:
        other.start()
        while not told:
            monitor.wait(60)  # the test would hang for a minute if nobody were woken
    other.join()
    assert told


def test_all_that_wait_are_woken():
    monitor, woken, ready = Monitor(), [], threading.Semaphore(0)

    def wait() -> None:
        with monitor:
            ready.release()
            monitor.wait(60)
            woken.append(threading.get_ident())

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
        ready.acquire()
    with monitor:  # the last one waits by now, since it has given the monitor away
        monitor.notify()
    for thread in threads:
        thread.join(60)
    assert len(woken) == 3
