"""The main job, run as a user runs it, and its search for leaks: it has to find those there are."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import syft as sy
from examples import federated_digits as demo
from tests.outside import outside
from tests.shells.forked import ForkedProgram

ROOT = Path(__file__).parent.parent.parent
Leak = Callable[[Any, Any], object]


@pytest.fixture(autouse=True)
def owners_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of the owners run nothing of syft that is not measured in other tests."""
    for name in os.environ.keys() - outside().keys():
        monkeypatch.delenv(name)


def test_the_main_job_keeps_its_promises(tmp_path: Path) -> None:
    command = [sys.executable, "examples/federated_digits.py", "--output", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "", "no bar without a terminal, no warning, no broken promise"
    rounds = [line for line in done.stdout.splitlines() if line.startswith("round ")]
    assert len(rounds) == 12
    assert "images and labels found in it: none" in done.stdout
    picture = (tmp_path / "federated_digits.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 20_000


@pytest.fixture
def forked_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Saves starts of Python: that the owners start by themselves is shown by the main job."""
    with (tmp_path / "errors").open("w+") as errors:

        def start(command: list[str], **streams: object) -> ForkedProgram:
            assert command[:2] == [sys.executable, demo.__file__]
            return ForkedProgram(demo.main, command[2:], error=errors.fileno())

        starts = SimpleNamespace(PIPE=subprocess.PIPE, Popen=start)
        monkeypatch.setattr(demo, "subprocess", starts)
        yield
        errors.seek(0)
        assert errors.read() == ""


@pytest.mark.usefixtures("forked_owners")
def test_a_terminal_gets_a_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    with os.fdopen(theirs, "w") as terminal, os.fdopen(mine, "rb", buffering=0) as screen:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
        monkeypatch.setattr(demo.tqdm, "monitor_interval", 0)  # no thread that stays
        assert demo.main(["--rounds", "1", "--output", str(tmp_path)]) == 1, "too few rounds"
        terminal.flush()
        said = b""
        while select.select([screen], [], [], 1)[0]:  # a read gives a part
            said += screen.read(1 << 16)
    assert b"training:" in said and b"2/2" in said
    assert b"DOES NOT HOLD: both models are right 95 times of 100" in said
    assert "round  1" in capsys.readouterr().out


@pytest.mark.usefixtures("forked_owners")
def test_each_owner_serves_her_share_and_ends_with_the_program(hook: sy.TorchHook) -> None:
    with demo.served(demo.OWNERS) as addresses:
        for owner, address in zip(demo.OWNERS, addresses, strict=True):
            there = sy.connect(address)
            assert there.id == owner
            for name, share in demo.share_of(owner).items():
                (images,) = there.search(["#digits", f"#{name}", "#images"])
                assert torch.equal(images.copy().get(), share.images)
            del images
            there.close()
    with pytest.raises(OSError):
        sy.connect(addresses[0])
    shares = [demo.share_of(owner) for owner in demo.OWNERS]
    assert sum(len(part.labels) for share in shares for part in share.values()) == 1796


# ------------------------------------------------------------------------------- the leak finder


@pytest.fixture(scope="module")
def digits() -> demo.Digits:
    return demo.handwritten_digits().part(0, 40)


def gradients(images: Any, labels: Any) -> object:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    model.send("bob")
    F.cross_entropy(model(images), labels).backward()
    return model.get()


LEAKS: dict[str, Leak] = {
    "everything": lambda images, labels: images.copy().get(),
    "one image": lambda images, labels: images[7].get(),
    "a quarter of an image": lambda images, labels: images[7, 20:36].get(),
    "the images, pixel by pixel": lambda images, labels: images.t().contiguous().get(),
    "images in another order": lambda images, labels: images.flip(0, 1).get(),
    "whole numbers": lambda images, labels: (images[3] * 16).to(torch.uint8).get(),
    "half precision": lambda images, labels: images[3].half().get(),
    "double precision": lambda images, labels: images[3].double().get(),
    "a list": lambda images, labels: images[3].tolist(),
    "an image at another brightness": lambda images, labels: (0.37 * images[3] - 0.2).get(),
    "a list of that": lambda images, labels: (0.37 * images[3] - 0.2).tolist(),
    "a sum in which an image stands": lambda images, labels: (
        torch.cat([images[3] * 0.1, torch.rand(200).send("bob")]).get()
    ),
    "fixed precision": lambda images, labels: (images[3] * 4096).long().get(),
    "the gradient of one image": lambda images, labels: gradients(images[4:5], labels[4:5]),
    "the gradient of a batch": gradients,
    "the labels": lambda images, labels: labels.copy().get(),
    "some labels": lambda images, labels: labels[:10].tolist(),
    "labels in bytes": lambda images, labels: labels.to(torch.int8).get(),
}


@pytest.mark.parametrize("name", LEAKS)
def test_leaks_are_found(name: str, digits: demo.Digits, hook: Any, bob: Any) -> None:
    finder = demo.LeakFinder(digits.images)
    images, labels = digits.images.send(bob), digits.labels.send(bob)
    with hook.record() as log:
        LEAKS[name](images, labels)
    found = [leak for entry in log.to("me") for leak in finder.leaks(entry)]
    assert found and all("from bob" in leak for leak in found)


def test_an_image_in_a_text_is_found(digits: demo.Digits, hook: Any, bob: Any) -> None:
    torch.set_printoptions(threshold=10_000)
    try:
        labels = digits.labels.send(bob).describe(f"they are {digits.labels}")
    finally:
        torch.set_printoptions(profile="default")
    finder = demo.LeakFinder(digits.images)
    with hook.record() as log:
        assert labels.description
    assert [leak for entry in log.to("me") for leak in finder.leaks(entry)] == [
        "pixels or labels in a message from bob (its header)"
    ]


def test_what_is_no_leak_is_not_taken_for_one(digits: demo.Digits, hook: Any, bob: Any) -> None:
    finder = demo.LeakFinder(digits.images)
    images, labels = digits.images.send(bob), digits.labels.send(bob)
    model: Any = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    model.send(bob)
    with hook.record() as log:
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        assert images.shape == (40, 64) and len(labels) == 40
        (model(images).argmax(dim=1) == labels).sum().get()
        loss.detach().get()
        torch.zeros(100).send(bob).get()
        model.zero_grad()
        model.get()
    assert [leak for entry in log.to("me") for leak in finder.leaks(entry)] == []


def test_numbers_fetched_one_by_one_show_in_the_count(
    digits: demo.Digits, hook: Any, bob: Any
) -> None:
    images = digits.images.send(bob)
    with hook.record() as log:
        for pixel in images[3, :20].unbind(0):
            pixel.item()
        bool(images[3].sum() > 5)
    evidence = demo.examine(log.to("me"), digits, nn.Linear(3, 3))
    assert evidence.messages[demo.NUMBER] == 21
    assert "          21 " in str(evidence)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (lambda images: images.sum(), demo.DONE),
        (lambda images: (images * 1).is_sparse, demo.NOTHING),
        (lambda images: (images * 1).shape, demo.NAMES),
        (lambda images: images.sum().item(), demo.NUMBER),
        (lambda images: images[:3, :4].get(), demo.MODEL),
        (lambda images: images[:3, :3].get(), demo.OTHER),
        (lambda images: images[0, :2].tolist(), demo.OTHER),
    ],
)
def test_messages_are_sorted_by_what_they_carry(
    message: Callable[[Any], object], kind: str, digits: demo.Digits, hook: Any, bob: Any
) -> None:
    images = digits.images.send(bob)
    with hook.record() as log:
        message(images)
    evidence = demo.examine(list(log.to("me"))[-1:], digits, nn.Linear(3, 3))
    assert [found for found, count in evidence.messages.items() if count] == [kind]


# ----------------------------------------------------------------------------------- the training


def test_training_at_one_owner_is_training_here(digits: demo.Digits, hook: Any) -> None:
    carol = sy.VirtualWorker(hook, id="carol")
    demo.publish(carol, "train", digits.part(0, 40))
    demo.publish(carol, "test", digits.part(0, 40))
    model = demo.new_model()
    site = demo.Site(carol, model)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(3))
    there = site.train(model.state_dict(), order)
    here = demo.train(model, demo.new_optimizer(model), digits, order)
    assert there == pytest.approx(here.item(), abs=1e-6)
    for name, value in demo.average([site]).items():
        torch.testing.assert_close(value, model.state_dict()[name])
    assert site.count_right(model) == demo.count_right(model, digits).item()
    del site
    carol.clear_objects()


def test_promises_that_are_not_kept_are_named() -> None:
    good, bad = demo.Curves({}, [0.97]), demo.Curves({}, [0.94])
    evidence = demo.Evidence({demo.NUMBER: 3}, {demo.NUMBER: 9}, ["pixels"])
    story = demo.Story(bad, good, evidence, {demo.NUMBER: 2})
    assert [problem.split(" (")[0] for problem in story.problems()] == [
        "no image and no label reached me",
        "nothing reached me but what was asked for",
        "both models are right 95 times of 100",
        "the two are within 2 points",
    ]
    kept = demo.Story(good, good, demo.Evidence({demo.NUMBER: 2}, {}, []), {demo.NUMBER: 2})
    assert kept.problems() == []
