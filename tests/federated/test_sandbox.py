"""The sandbox: six workers with data that together is scikit-learn's."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from sklearn import datasets

import syft as sy
from syft.exceptions import WorkerIdTaken
from syft.federated.sandbox import DATA_SETS, NAMES
from syft.workers.shells.worker import Worker

NEW = {"torch", "hook", "workers", "grid", *NAMES}


def sandbox(**settings: Any) -> dict[str, Any]:
    names: dict[str, Any] = {}
    sy.create_sandbox(names, **settings)
    return names


def cleared(names: dict[str, Any]) -> None:
    for worker in names["workers"]:
        worker.clear_objects()


def test_the_names_are_there_and_the_workers_know_each_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = sandbox(verbose=False, download_data=False)
    assert capsys.readouterr().out == "Setting up Sandbox...\nDone!\n"
    assert set(names) == NEW and names["torch"] is torch
    assert names["hook"] is sy.TorchHook(torch)
    assert [worker.id for worker in names["workers"]] == list(NAMES)
    assert all(names[worker.id] is worker for worker in names["workers"])
    assert names["grid"].workers == names["workers"]
    assert torch.ones(2).send("bob").move("jon").location is names["jon"]
    assert all(worker.objects_count() == 0 for worker in names["workers"])


@pytest.mark.parametrize("name", DATA_SETS)
def test_the_parts_together_are_the_data_set(name: str) -> None:
    names = sandbox(verbose=False)
    federated = sy.FederatedDataset.from_search(
        names["grid"], [f"#{name}", "#data"], [f"#{name}", "#target"]
    )
    assert federated.workers == list(NAMES)
    sizes = [len(part) for part in federated]
    assert max(sizes) - min(sizes) <= 1
    loaded = getattr(datasets, f"load_{name}")()
    parts = [part.get() for part in federated]
    found = torch.cat(
        [torch.cat([part.data, part.targets.view(len(part), -1).float()], 1) for part in parts]
    )
    data, target = torch.tensor(loaded.data).float(), torch.tensor(loaded.target).float()
    whole = torch.cat([data, target.view(len(data), -1)], 1)
    assert sorted(found.tolist()) == sorted(whole.tolist())
    assert parts[0].targets.dtype is (
        torch.float32 if name in ("diabetes", "linnerud") else torch.int64
    )
    assert names["bob"].search([f"#{name}", "#data"])[0].description == (
        f"{name} of scikit-learn: the data"
    )
    del federated
    cleared(names)


def test_twice_is_as_once(capsys: pytest.CaptureFixture[str]) -> None:
    first = sandbox()
    assert "digits (#digits)" in capsys.readouterr().out
    first["bob"].clear_objects()
    second = sandbox(verbose=False)
    assert second["workers"] == first["workers"]
    sandbox(verbose=False)
    assert [worker.objects_count() for worker in second["workers"]] == [2 * len(DATA_SETS)] * 6
    cleared(second)


def test_without_scikit_learn_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    names: dict[str, Any] = {}
    with pytest.raises(ImportError, match=r"scikit-learn, .* pip install scikit-learn, or call"):
        sy.create_sandbox(names)
    assert names == {} and not hasattr(torch.Tensor, "send"), "nothing is half done"
    assert set(sandbox(verbose=False, download_data=False)) == NEW


def test_a_worker_of_another_kind_keeps_its_name(hook: sy.TorchHook) -> None:
    class Elsewhere(Worker):
        id, closed = "theo", True

        def transport_for(self, caller: Any) -> Any:
            raise NotImplementedError

        def close(self) -> None:
            raise NotImplementedError

    hook.local_worker.network.workers["theo"] = Elsewhere()
    with pytest.raises(WorkerIdTaken):
        sandbox(verbose=False, download_data=False)
    del hook.local_worker.network.workers["theo"]
