"""The container of a worker: what can be said of it without building it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from syft.node.cli import command_line
from syft.node.worker_command import worker_options
from syft_command import check_parser

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


def test_the_health_check_is_one_that_the_command_takes() -> None:
    (line,) = [line for line in DOCKERFILE.splitlines() if line.startswith("HEALTHCHECK")]
    program, *given = json.loads(line.partition(" CMD ")[2])
    assert given[0] == "check"
    options = check_parser().parse_args(given[1:])
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
    assert len(found) == 3
    for command in found:
        command_line().parse_args(command.split())


def test_the_file_of_options_is_one_that_the_worker_takes() -> None:
    given = worker_options().with_file(["--config", str(DEPLOY / "bob.toml")])
    options = command_line().parse_args(["worker", *given])
    assert options.trusted_proxy == ["172.28.0.2"] and not options.anonymous
    assert [file.readers for file in options.data] == [["ann"]]


def test_the_proxy_is_the_one_that_the_worker_trusts() -> None:
    text = (DEPLOY / "compose-proxy.yaml").read_text(encoding="utf-8")
    started = re.findall(r'^      - "(--.*)"$', text, re.MULTILINE)
    options = command_line().parse_args(
        ["worker", *arguments(DOCKERFILE, "ENTRYPOINT")[2:], *started]
    )
    (proxy,) = options.trusted_proxy
    assert f"ipv4_address: {proxy} }}" in text.partition("  proxy:")[2]
    nginx = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    assert "location = /bob {" in nginx
    assert "X-Forwarded-For $proxy_add_x_forwarded_for" in nginx
    assert f"proxy_ssl_name {options.cert_name[0]};" in nginx


def test_the_unit_starts_the_worker_with_a_file() -> None:
    unit = (DEPLOY / "syft-worker@.service").read_text(encoding="utf-8")
    (line,) = re.findall(r"^ExecStart=/opt/syft/bin/syft (.*)$", unit, re.MULTILINE)
    options = command_line().parse_args(line.replace("%i", "bob").split())
    assert (options.config, options.state) == ("/etc/syft/bob.toml", "/var/lib/syft/bob")
    for setting in ("DynamicUser=yes", "NoNewPrivileges=yes", "ProtectSystem=strict", "Restart="):
        assert setting in unit
