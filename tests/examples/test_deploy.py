"""The container of a worker: what can be said of it without building it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from syft.node.cli import command_line

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")


def arguments(text: str, before: str) -> list[str]:
    """The list in JSON that follows some words at the start of a line."""
    (found,) = re.findall(rf"^\s*{before}\s*(\[.*\])$", text, re.MULTILINE)
    words: list[str] = json.loads(found)
    return words


@pytest.mark.parametrize(
    "given",
    [arguments(DOCKERFILE, "CMD"), arguments(COMPOSE, "command:")],
    ids=["image", "compose"],
)
def test_the_worker_is_started_with_arguments_that_it_takes(given: list[str]) -> None:
    program, *fixed = arguments(DOCKERFILE, "ENTRYPOINT")
    assert program == "syft"
    options = command_line().parse_args([*fixed, *given])
    assert (options.host, options.port, options.log) == ("0.0.0.0", 8777, "json")
    assert options.state == "/state" and options.token_file == "/state/tokens.json"
    assert not options.anonymous
    for file in options.data:
        assert file.path.startswith("/data/") and file.readers == ["ann"]


def test_the_health_check_is_one_that_the_doctor_takes() -> None:
    (line,) = [line for line in DOCKERFILE.splitlines() if line.startswith("HEALTHCHECK")]
    program, *given = json.loads(line.partition(" CMD ")[2])
    options = command_line().parse_args(given)
    assert (program, options.address) == ("syft", "wss://127.0.0.1:8777")
    assert options.ca_file == "/state/certificate.pem"


def test_it_has_no_rights_that_it_does_not_need() -> None:
    instructions = [line.split()[0] for line in DOCKERFILE.splitlines() if line[:1].isupper()]
    assert instructions.index("USER") < instructions.index("ENTRYPOINT")
    assert instructions.count("USER") == 1 and "USER syft" in DOCKERFILE
    for setting in ("read_only: true", "no-new-privileges:true", 'cap_drop: ["ALL"]', "restart:"):
        assert setting in COMPOSE


def test_what_is_copied_is_there() -> None:
    for line in re.findall(r"^COPY (.*)$", DOCKERFILE, re.MULTILINE):
        for name in line.split()[:-1]:
            assert (ROOT / name).exists(), name


def test_the_commands_of_the_page_are_taken() -> None:
    page = (DEPLOY / "README.md").read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.findall(
        r"(?:--entrypoint )?syft(?: bob)? ((?:token (?:new|revoke)|doctor) [^'`>\n]*)", page
    )
    assert len(found) == 4
    for command in found:
        command_line().parse_args(command.split())
