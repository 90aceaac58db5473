"""What others have chosen is contained in the line of the log that tells of it."""

from __future__ import annotations

import io
import json
import logging

import pytest

from syft.node.worker_log import logging_to
from syft.workers.sockets.sparse_log import LOG, SparseLog

FORGED = "eve\n2026-01-01 00:00:00 info let in ann\r\x1b[2K\x85\u2028\u202eleft"


def write_all() -> None:
    LOG.info("no connection to %s (%s)", FORGED, ValueError(FORGED))
    SparseLog(LOG).warning("refused a caller: %s", FORGED)
    try:
        raise ValueError(FORGED)
    except ValueError:
        LOG.critical("the worker has failed: %s", FORGED, exc_info=True)


def test_nobody_forges_a_line_of_a_log_or_moves_the_cursor() -> None:
    screen = io.StringIO()
    with logging_to(screen, "bob", "text", "info"):
        write_all()
    text = screen.getvalue()
    assert text.replace("\n", "").isprintable()
    rows = [row for row in text.split("\n") if row and not row.startswith("    ")]
    assert [row.split()[2] for row in rows] == ["info", "warning", "critical"]
    assert r"\r\x1b[2K\x85\u2028\u202eleft" in text, "it is told all the same"


def test_as_json_it_is_a_line_each() -> None:
    screen = io.StringIO()
    with logging_to(screen, "bob", "json", "info"):
        write_all()
    levels = [json.loads(row)["level"] for row in screen.getvalue().splitlines()]
    assert levels == ["info", "warning", "critical"]


def test_the_handlers_of_a_program_get_it_contained_too(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "syft.worker"):
        LOG.info("no connection to %s", FORGED)
    (said,) = caplog.messages
    assert said.count("\n") == said.count("\n    ") == 1 and "\r" not in said
