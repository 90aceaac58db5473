"""A worker that serves in a process of its own, as an owner of data has it.

Run as a program, this is the process: it serves until its standard input is closed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from typing import Any

import syft as sy
from benchmarks.child import Child
from benchmarks.memory import resident

HEARTBEAT = 60.0
"""Seconds: a benchmark does not measure what idle connections say to each other."""


class ServerProcess:
    """The process, seen from outside; ``kind`` is ``tcp``, ``unix`` or ``tls``."""

    def __init__(self, id: str, kind: str = "tcp") -> None:
        self.id = id
        self.child = Child("benchmarks.server_process", id, kind)
        self.address = self.child.said[0]
        self.fingerprint = self.child.said[1] if kind == "tls" else None

    def client(self, **settings: Any) -> sy.WebsocketClientWorker:
        """Connect to it."""
        return sy.connect(self.address, fingerprint=self.fingerprint, **settings)

    def resident(self) -> int:
        """The bytes of the process that are in memory (Linux)."""
        return resident(self.child.process.pid)

    def close(self) -> None:
        """End the process."""
        self.child.close()


def main() -> None:
    """Serve until the standard input is closed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("id")
    parser.add_argument("kind", choices=("tcp", "unix", "tls"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = sy.WebsocketServerWorker(
            # Off loopback, where TLS is not optional; it is called over loopback all the same.
            host="0.0.0.0" if options.kind == "tls" else "127.0.0.1",
            port=0,
            unix=f"{folder}/worker" if options.kind == "unix" else None,
            id=options.id,
            state=folder,
            anonymous=True,
            allow_plans=True,
            heartbeat=HEARTBEAT,
        )
        address, fingerprint = str(server.address), ""
        if server.identity is not None:
            address = f"wss://127.0.0.1:{server.port}"
            fingerprint = server.identity.fingerprint
        print(address, fingerprint, flush=True)

        def stop() -> None:
            sys.stdin.read()
            server.stop()

        threading.Thread(target=stop, daemon=True).start()
        server.start()


if __name__ == "__main__":
    main()
