"""A library for the tests of the comparison: it computes nothing, and ends when it is told to.

As a coordinator it answers by itself; with a rank it is a party that sends bytes to itself.
"""

from __future__ import annotations

import socket
import sys

from benchmarks.compare.parties import Prepared, Rank, Ranks, coordinate, free_port


def prepare(name: str) -> Prepared:
    """Prepare the case: its name is how many bytes are sent, or ``end``."""
    if name == "end":
        raise SystemExit(3)
    rank = int(sys.argv[1])
    with socket.create_server(("127.0.0.1", free_port())) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()

    def run() -> str:
        sender.sendall(bytes(int(name)))
        while receiver.recv(1 << 16, socket.MSG_DONTWAIT) == b"":
            continue
        return name

    # A library may print what it likes, but for lines that begin with a brace.
    print("prepared", flush=True)
    return Prepared(run, lambda result: float(result) + rank)


def main() -> None:
    """Coordinate two ranks, or be one."""
    if len(sys.argv) == 2:
        Rank(prepare, lambda: None).serve()
        return
    ranks = Ranks("tests.echo_peer", 2)
    try:
        coordinate(ranks.run, ranks.used, sys.stdin)
    finally:
        ranks.close()


if __name__ == "__main__":
    main()
