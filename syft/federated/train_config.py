"""``sy.TrainConfig``: a model, a loss and how to train, for ``worker.fit`` where the data is."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import nn

from syft.chain.wrapper import Wrapper
from syft.exceptions import UnusableSetting
from syft.federated.local_batches import LocalBatches
from syft.federated.sent_training import SentTraining, TrainSettings, loss_in_order, state_of
from syft.hooks.ledger import EXTENSIONS
from syft.hooks.module_methods import ModuleAttribute
from syft.hooks.torch_hook import TorchHook
from syft.plans.function_plan import as_python
from syft.workers.client.transport import Location

_RATE: Final = {"lr": 0.1}


class TrainConfig:
    """A model, a loss and how to train them: sent to a worker, ``worker.fit`` trains there.

    ``model`` is a module, or a TorchScript module that was traced or scripted: what it does is
    recorded here, and nothing of it travels but a plan of a step and the parameters.  ``loss_fn``
    is a function of Python or TorchScript, or a module.  If its parameters are called ``target``
    and ``pred``, it gets them by these names; any other gets the prediction first, as torch's
    losses do.  ``optimizer`` is the name of one in ``torch.optim``, made with ``optimizer_args``.

    ``max_nr_batches`` bounds the steps of a fit, over all epochs; 0 and -1 are any number.
    ``shuffle`` draws a new order for each epoch, from ``seed`` or torch's own generator.  The last
    batch of an epoch may be smaller.  A module of Python is trained in the mode ``train()``; a
    traced one keeps the mode in which it was traced.

    Raises :class:`~syft.exceptions.UnusableSetting` for an optimizer that torch has not, for a
    model at a worker, and for numbers out of range; what torch raises for ``optimizer_args``; and
    :class:`~syft.exceptions.CannotRecord` for TorchScript that no plan can keep.

    >>> config = sy.TrainConfig(
    ...     model=nn.Linear(2, 1), loss_fn=nn.MSELoss(), optimizer="SGD", batch_size=2,
    ...     optimizer_args={"lr": 0.1}, epochs=3, shuffle=False,
    ... )
    >>> config
    <TrainConfig Linear SGD batch_size:2 epochs:3>
    >>> bob.add_dataset(sy.BaseDataset(torch.eye(2), torch.ones(2, 1)), key="ones")
    >>> config = config.send(bob)
    >>> _ = bob.fit(dataset_key="ones")
    >>> config.model_ptr, len(config.losses)
    (<ModelPointer Linear at bob>, 3)
    >>> trained = config.model_ptr.get()
    >>> torch.equal(trained.weight, config.model.weight)
    False
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[..., torch.Tensor],
        batch_size: int = 32,
        epochs: int = 1,
        optimizer: str = "SGD",
        optimizer_args: Mapping[str, Any] | None = None,
        max_nr_batches: int = -1,
        shuffle: bool = True,
        *,
        seed: int | None = None,
    ) -> None:
        made = _optimizer_called(
            optimizer, dict(_RATE if optimizer_args is None else optimizer_args)
        )
        batches = LocalBatches(batch_size, epochs, shuffle, False, max(0, max_nr_batches))
        self.model = model
        self.loss_fn = loss_fn
        self.optimizer = optimizer
        self.batch_size = batch_size
        self.epochs = epochs
        if any(type(tensor) is Wrapper for tensor in state_of(model).values()):
            raise UnusableSetting("model", "in this process", "one at a worker: get() it first")
        loss = loss_in_order(as_python(loss_fn))
        self._settings = TrainSettings(model, loss, made, batches, seed)
        made(as_python(model).parameters())  # says what is wrong with the arguments
        self._sent: dict[str, SentTraining] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if "_sent" in vars(self):  # it was made, and what trains has these settings
            raise AttributeError(f"a TrainConfig keeps its {name!r}: make another, and send that")
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        name = _name_of(self.model)
        settings = f"batch_size:{self.batch_size} epochs:{self.epochs}"
        return f"<TrainConfig {name} {self.optimizer} {settings}>"

    def send(self, *locations: Location | str) -> TrainConfig:
        """Have workers train this with their next ``fit``; returns the configuration.

        What they will train is the model as it is now.  The plan travels with the first ``fit``,
        when a batch is known, and is dropped with this configuration.

        Raises :class:`~syft.exceptions.UnknownWorker`, and
        :class:`~syft.exceptions.UnusableSetting` for no worker.

        >>> config = sy.TrainConfig(model=nn.Linear(2, 1), loss_fn=nn.MSELoss())
        >>> list(config.send(bob, alice).model_ptrs)
        ['bob', 'alice']
        """
        if not locations:
            raise UnusableSetting("locations", "one worker or more", "none")
        local = TorchHook.current().local_worker
        for worker in [local.get_worker(location) for location in locations]:
            self._sent.pop(worker.id, None)
            self._sent[worker.id] = SentTraining(self._settings, worker)
        return self

    @property
    def model_ptrs(self) -> dict[str, ModelPointer]:
        """Where the model is trained, by the names of the workers."""
        return {name: ModelPointer(sent) for name, sent in self._sent.items()}

    @property
    def model_ptr(self) -> ModelPointer | None:
        """The model at the worker to which this was sent last; None before.

        >>> print(sy.TrainConfig(model=nn.Linear(2, 1), loss_fn=nn.MSELoss()).model_ptr)
        None
        """
        pointers = list(self.model_ptrs.values())
        return pointers[-1] if pointers else None

    @property
    def losses(self) -> list[Any]:
        """The mean loss of each epoch there; of private data a pointer to it.

        >>> sy.TrainConfig(model=nn.Linear(2, 1), loss_fn=nn.MSELoss()).losses
        []
        """
        pointer = self.model_ptr
        return [] if pointer is None else pointer.losses


class ModelPointer:
    """Stands for a model that is trained at a worker; :meth:`get` brings a copy of it here.

    >>> config = sy.TrainConfig(model=nn.Linear(2, 1), loss_fn=nn.MSELoss()).send(bob)
    >>> config.model_ptr, config.model_ptr.location is bob
    (<ModelPointer Linear at bob>, True)
    """

    def __init__(self, sent: SentTraining) -> None:
        self._training = sent

    def __repr__(self) -> str:
        return f"<ModelPointer {_name_of(self._training.settings.model)} at {self.location.id}>"

    @property
    def location(self) -> Any:
        """The worker that trains it."""
        return self._training.worker

    @property
    def losses(self) -> list[Any]:
        """The mean loss of each epoch there; of private data a pointer to it."""
        return list(self._training.losses)

    def get(self, user: str | None = None) -> Any:
        """A copy of the model as trained so far: a module of the class that was given.

        It stays at the worker too, where training may go on.  The ``obj`` of earlier versions is
        there: it is the module itself.

        Raises :class:`~syft.exceptions.PermissionDenied` if it was trained on private data that
        ``user`` may not read.

        >>> config = sy.TrainConfig(model=nn.Linear(2, 1), loss_fn=nn.MSELoss()).send(bob)
        >>> model = config.model_ptr.get()
        >>> type(model), model.obj is model
        (<class 'torch.nn.modules.linear.Linear'>, True)
        """
        return self._training.trained(user)


def _name_of(model: nn.Module) -> str:
    return str(getattr(model, "original_name", type(model).__name__))


def _optimizer_called(name: str, arguments: dict[str, Any]) -> Callable[..., torch.optim.Optimizer]:
    """What makes an optimizer of torch; raises UnusableSetting for any other name."""
    known = {
        each
        for each, value in vars(torch.optim).items()
        if inspect.isclass(value) and issubclass(value, torch.optim.Optimizer)
    } - {"Optimizer"}
    if name not in known:
        names = ", ".join(sorted(known))
        raise UnusableSetting("optimizer", f"the name of one in torch.optim ({names})", repr(name))
    return functools.partial(getattr(torch.optim, name), **arguments)


def _itself(module: nn.Module) -> nn.Module:
    """The module itself: what ``model_ptr.get().obj`` was in earlier versions.

    >>> hook = sy.TorchHook(torch)
    >>> model = torch.nn.Linear(2, 1)
    >>> model.obj is model
    True
    """
    return module


EXTENSIONS.append((nn.Module, "obj", ModuleAttribute("obj", _itself, is_method=False)))
