"""Some cases of torch's own databases on a worker in another process, immediate and queued."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_modules import ModuleInfo, module_db
from torch.testing._internal.common_optimizers import OptimizerInfo

import syft as sy
from tests.shells import owner
from tests.torch_suite import agreement, test_modules, test_optimizers, test_programs
from tests.torch_suite.agreement import check_backward, check_forward
from tests.torch_suite.carriers import PointerCarrier
from tests.torch_suite.cases import DEVICES, GRADIENT_CASES, OP_CASES, SEED, Case, seed
from tests.torch_suite.known_failures import parameters

pytestmark = [
    # Torch's cases call what is deprecated or slow on purpose, and torch says so, once a process.
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

OPS = [(case.name, case) for case in OP_CASES[::40]]
GRADIENTS = [(case.name, case) for case in GRADIENT_CASES[::40]]
MODULES = [(info.name, info) for info in module_db[::10]]
OPTIMIZERS = [*test_optimizers._cases()][::20]

every_device = pytest.mark.parametrize("device", DEVICES)


@pytest.fixture(params=["child", "socket"])
def shell(request: pytest.FixtureRequest) -> str:
    """All workers of these tests are in processes of their own."""
    return str(request.param)


@pytest.fixture(autouse=True)
def seeded_there(worker: sy.VirtualWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed the worker too, whenever a case seeds this process."""

    def draw(operator: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What some cases of torch do after they have seeded this process."""
        return operator(*args, **kwargs)

    def seed_both(number: int = SEED) -> None:
        seed(number)
        owner.seed(worker, number)

    monkeypatch.setattr(agreement, "seed", seed_both)
    monkeypatch.setattr(common_methods_invocations, "wrapper_set_seed", draw)


@every_device
@pytest.mark.parametrize("case", parameters("pointer", OPS))
def test_pointer(case: Case, device: str, worker: sy.VirtualWorker) -> None:
    for sample in case.samples(device):
        check_forward(case, sample, PointerCarrier(worker))


@every_device
@pytest.mark.parametrize("case", parameters("gradient", GRADIENTS))
def test_gradients(case: Case, device: str, worker: sy.VirtualWorker) -> None:
    for sample in case.samples(device, requires_grad=True):
        check_backward(case, sample, PointerCarrier(worker))


@every_device
@pytest.mark.parametrize("info", parameters("module", MODULES))
def test_module(info: ModuleInfo, device: str, worker: sy.VirtualWorker) -> None:
    test_modules.test_module(info, True, device, PointerCarrier, worker)


@pytest.mark.parametrize("case", parameters("optimizer", OPTIMIZERS))
def test_optimizer(
    case: tuple[str, OptimizerInfo, dict[str, Any]], worker: sy.VirtualWorker
) -> None:
    test_optimizers.test_optimizer(case, "after_it_is_made", PointerCarrier, worker)


@every_device
@pytest.mark.parametrize("case", parameters("program", OPS))
def test_program(case: Case, device: str, worker: sy.VirtualWorker) -> None:
    for sample, other in test_programs.with_others(case, device):
        test_programs.check_program(case, sample, other, worker)
