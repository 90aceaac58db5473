"""``python -m syft.node``: the command ``syft``, where it is not on the path."""

from __future__ import annotations

import sys

from syft.node.cli import main

if __name__ == "__main__":
    sys.exit(main())
