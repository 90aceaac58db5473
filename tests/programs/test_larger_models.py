"""Ten larger models without an edit but ``.send``: a step of training equals plain torch."""

from __future__ import annotations

import pytest
import torch

import syft as sy
from tests.programs.harness import Program, check_same, plainly, run_remotely
from tests.programs.larger_models import MODELS
from tests.shells.child import make_worker


def program_of(name: str) -> Program:
    """The step of a model as a program, whose inputs are made in order."""
    model = MODELS[name]
    count = len(model.inputs())

    def input_at(place: int) -> torch.Tensor:
        torch.manual_seed(place)
        return model.inputs()[place]

    makers = [lambda place=place: input_at(place) for place in range(count)]
    return Program(name, model.step, (model.make, *makers), drawn=model.drawn)


@pytest.mark.parametrize("way", ["virtual", "queued"])
@pytest.mark.parametrize("name", MODELS)
def test_a_larger_model(name: str, way: str, hook: sy.TorchHook) -> None:
    program = program_of(name)
    worker = make_worker(hook, "worker", pipelined=way == "queued")
    check_same(plainly(program), run_remotely(program, worker))


@pytest.mark.parametrize("shell", ["socket"], indirect=True)
@pytest.mark.parametrize("name", MODELS)
def test_a_larger_model_in_another_process(name: str, shell: str, hook: sy.TorchHook) -> None:
    program = program_of(name)
    values = not program.drawn
    check_same(plainly(program), run_remotely(program, make_worker(hook, "worker")), values)
