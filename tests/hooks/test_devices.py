"""``sy.device(bob)``: programs written with ``device=`` run at a worker without an edit."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import syft as sy
from syft.ops.table import NAMES
from syft.workers.client.operations import Operations
from syft.exceptions import (
    DeviceMismatch,
    NotSendable,
    PermissionDenied,
    UnknownDevice,
    UnknownWorker,
)


@pytest.fixture
def device(hook, bob):
    return sy.device(bob)


def close(mine, theirs):
    torch.testing.assert_close(mine.detach().cpu(), theirs.detach())


class Block(nn.Module):
    """A transformer block of the shape of GPT-2's, which makes its mask on the device of x."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norm(x)).split(width, dim=2)
        q, k, v = (
            p.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for p in parts
        )
        mask = torch.tril(torch.ones(length, length, dtype=torch.bool, device=x.device))
        weights = (q @ k.transpose(2, 3)) / k.shape[-1] ** 0.5
        weights = weights.masked_fill(~mask, float("-inf")).softmax(-1)
        mixed = (weights @ v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, words: int = 17, width: int = 16, context: int = 12) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(Block(width, 2), Block(width, 2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, index):
        places = torch.arange(index.shape[1], device=index.device)
        return self.head(self.norm(self.blocks(self.words(index) + self.places(places))))


def trained(model, optimizer, x, y, steps=3):
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


OPTIMIZERS = [
    lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    lambda parameters: torch.optim.Adam(parameters, lr=0.01),
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("before", [True, False])
def test_a_language_model_that_makes_masks_and_places_trains_as_here(device, optimizer, before):
    torch.manual_seed(0)
    here = Gpt()
    there = copy.deepcopy(here)
    kept = [id(p) for p in there.parameters()]
    made = optimizer(there.parameters()) if before else None
    assert there.to(device) is there
    assert [id(p) for p in there.parameters()] == kept
    made = made or optimizer(there.parameters())
    x, y = torch.randint(17, (2, 8)), torch.randint(17, (2, 8))
    mine = trained(there, made, x.to(device), y.to(device))
    theirs = trained(here, optimizer(here.parameters()), x, y)
    assert mine == pytest.approx(theirs, rel=1e-5)
    assert all(p.device == device for p in there.parameters())
    there.to("cpu")
    assert [id(p) for p in there.parameters()] == kept
    for p, q in zip(there.parameters(), here.parameters(), strict=True):
        assert type(p) is nn.Parameter
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("settings", [{"pipelined": True}, {"pipelined": True, "lazy": True}])
def test_a_generation_loop_waits_once_a_token(hook, settings, monkeypatch):
    asked = []
    command = Operations.command

    def spy(self, op, *operands):
        if operands[-1] is None:
            asked.append(NAMES[op])
        return command(self, op, *operands)

    def generated(model, ids, count):
        found = []
        with torch.no_grad():
            for _ in range(count):
                best = model(ids)[:, -1].argmax(-1, keepdim=True)
                ids = torch.cat([ids, best], 1)
                found.append(best.item())
        return found

    monkeypatch.setattr(Operations, "command", spy)
    worker = sy.VirtualWorker(hook, id="queued", **settings)
    here = Gpt(context=40).eval()
    there = copy.deepcopy(here).to(sy.device(worker))
    prompt = torch.randint(17, (1, 4))
    mine = generated(there, prompt.to(sy.device(worker)), 32)
    assert mine == generated(here, prompt, 32)
    assert asked == ["torch.Tensor.item"] * 32


def test_a_state_comes_back_to_a_module_that_is_here(device):
    there = nn.Linear(3, 2).to(device)
    here = nn.Linear(3, 2)
    here.load_state_dict(there.state_dict())
    close(there.weight, here.weight)
    there.load_state_dict(nn.Linear(3, 2).state_dict())
    assert there.weight.device == device


MADE = [
    lambda d: torch.zeros(2, 3, device=d),
    lambda d: torch.ones(2, dtype=torch.int64, device=d),
    lambda d: torch.full((2,), 3.5, device=d),
    lambda d: torch.eye(3, 2, device=d),
    lambda d: torch.arange(4, device=d),
    lambda d: torch.arange(1, 9, 2, device=d),
    lambda d: torch.linspace(0, 1, 5, device=d),
    lambda d: torch.logspace(0, 1, 5, device=d),
    lambda d: torch.tensor([[1, 2], [3, 4]], device=d),
    lambda d: torch.tensor(2.5, device=d),
    lambda d: torch.as_tensor([1.0, 2.0], device=d),
    lambda d: torch.scalar_tensor(2.5, device=d),
    lambda d: torch.tril_indices(3, 3, device=d),
    lambda d: torch.triu_indices(3, 3, device=d),
    lambda d: torch.hann_window(5, device=d),
    lambda d: torch.kaiser_window(5, True, 8.0, device=d),
    lambda d: torch.bartlett_window(5, False, device=d),
    lambda d: torch.blackman_window(5, device=d),
    lambda d: torch.hamming_window(5, True, 0.5, 0.4, device=d),
    lambda d: torch.fft.fftfreq(5, device=d),
    lambda d: torch.fft.rfftfreq(5, device=d),
    lambda d: torch.signal.windows.cosine(5, device=d),
    lambda d: torch.zeros_like(torch.ones(2, 3), device=d),
    lambda d: torch.full_like(torch.ones(2), 4, device=d),
    lambda d: torch.ones(2).new_zeros(3, device=d),
    lambda d: torch.ones(2).new_tensor([1, 2], device=d),
    lambda d: torch.ones(2, device=d).new_ones(3),
    lambda d: torch.ones(2, device=d).new_full((3,), 2),
    lambda d: torch.ones(2, device=d).new_tensor([3.0]),
    lambda d: torch.ones_like(torch.ones(2, device=d)),
    lambda d: torch.ones_like(torch.ones(2, device=d), device=d, dtype=torch.float64),
    lambda d: torch.arange(3).to(d),
    lambda d: torch.arange(3).to(d, torch.float64),
    lambda d: torch.arange(3).to(device=d, dtype=torch.float16, non_blocking=True),
    lambda d: torch.arange(6.0).view(2, 3).t().to(d, copy=True),
    lambda d: torch.ones(3, 1).expand(3, 4).to(d),
    lambda d: torch.ones(2, dtype=torch.complex64).conj().to(d),
    lambda d: torch.arange(3).to(torch.ones(1, device=d)),
    lambda d: torch.empty(0, 3, device=d),
]


@pytest.mark.parametrize("make", MADE)
def test_what_torch_makes_there_is_what_it_makes_here(device, bob, make):
    there, here = make(device), make("cpu")
    assert isinstance(there, torch.Tensor) and there.location is bob
    assert there.device == device and there.device.type == "syft"
    assert there.dtype == here.dtype and there.shape == here.shape
    assert torch.equal(there.cpu(), here)


DRAWN = [
    lambda d: torch.rand(2, 3, device=d),
    lambda d: torch.randn(4, device=d),
    lambda d: torch.randint(9, (4,), device=d),
    lambda d: torch.randint(3, 9, (4,), device=d),
    lambda d: torch.randperm(6, device=d),
    lambda d: torch.normal(0.0, 1.0, (3,), device=d),
    lambda d: torch.randn(3, device=d, generator=torch.Generator().manual_seed(7)),
]


@pytest.mark.parametrize("make", DRAWN)
def test_what_is_drawn_there_has_the_form_that_it_has_here(device, make):
    there, here = make(device), make("cpu")
    assert there.device == device and there.dtype == here.dtype and there.shape == here.shape
    torch.manual_seed(3)  # a worker of this process draws with the same generator
    there = make(device)
    torch.manual_seed(3)
    assert there.cpu().shape == make("cpu").shape


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.ones(3, device=d, requires_grad=True),
        lambda d: torch.rand(3, device=d, requires_grad=True),
        lambda d: torch.tensor([1.0, 2.0], device=d, requires_grad=True),
        lambda d: torch.empty(3, device=d, requires_grad=True),
        lambda d: nn.Parameter(torch.ones(3, device=d)),
    ],
)
@pytest.mark.parametrize(
    "use",
    [
        lambda w, x: (w * 2).sum(),
        lambda w, x: (x.sum() * w).sum(),
        lambda w, x: torch.stack([w, w]).sum(),
        lambda w, x: w.sum() * 2,
    ],
)
def test_a_leaf_made_there_gets_its_gradient(device, make, use):
    w, x = make(device), torch.ones(2, device=device)
    use(w, x).backward()
    assert w.requires_grad and w.is_leaf
    assert w.grad.device == device
    assert torch.equal(w.grad.cpu(), torch.full(w.shape, 2.0))


def test_new_parameters_are_drawn_and_trained_there(device, bob):
    layer = nn.Linear(3, 2, device=device)
    assert isinstance(layer.weight, nn.Parameter) and layer.weight.location is bob
    layer(torch.ones(1, 3, device=device)).sum().backward()
    assert torch.equal(layer.weight.grad.cpu(), torch.ones(2, 3))


def test_a_scope_makes_tensors_and_modules_there(device):
    with device:
        x, layer = torch.zeros(2), nn.Linear(2, 2)
        assert torch.get_default_device() == device
    assert x.device == device and layer.weight.device == device
    assert torch.zeros(2).device == torch.device("cpu")
    torch.set_default_device(device)
    try:
        assert torch.tensor([1, 2]).device == device
        assert torch.zeros(2, device="cpu").location is None
    finally:
        torch.set_default_device(None)


RESULTS = [
    lambda x: x + x,
    lambda x: x.relu(),
    lambda x: nn.functional.relu(x, inplace=False),
    lambda x: x.max(1),
    lambda x: x.sort(),
    lambda x: x.split(1),
    lambda x: torch.stack([x, x]),
    lambda x: x.nonzero(as_tuple=True),
    lambda x: x[x > 1],
    lambda x: x[torch.tensor([1])],
    lambda x: x[:, None],
    lambda x: x.clone().add_(1),
    lambda x: x + torch.ones(()),
    lambda x: torch.ones(()) + x,
    lambda x: torch.ones(2, 3).send("bob") + x,
    lambda x: x * torch.ones(2, 3).send("bob"),
    lambda x: nn.functional.one_hot(x.long()),
    lambda x: copy.deepcopy(x),
    lambda x: x.data,
    lambda x: x.to(torch.float64),
    lambda x: x.view_as(x).to(x.device),
    lambda x: x.double(),
    lambda x: x.unique(return_counts=True),
]


@pytest.mark.parametrize("use", RESULTS)
def test_results_are_on_the_device(device, use):
    found = use(torch.arange(6.0).reshape(2, 3).to(device))
    for one in found if isinstance(found, tuple) else [found]:
        assert one.device == device


def test_results_of_an_open_group_are_on_the_device(device, bob):
    x = torch.ones(2, device=device)
    with bob.group():
        y = (x + x).max(0)
        z = torch.ones(2, device=device) + x
    assert [one.device for one in (*y, z)] == [device] * 3
    assert y.values.item() == 2 and torch.equal(z.cpu(), torch.full((2,), 2.0))


def test_a_pointer_is_as_it_was(device, bob):
    x = torch.ones(2).send(bob)
    assert x.device == torch.device("cpu") and (x + x).device == torch.device("cpu")
    assert x.cpu().location is bob
    y = x.to(device)
    assert y.device == device and x.device == torch.device("cpu")
    w = torch.ones(2).send(bob).requires_grad_()
    v = torch.ones(2, device=device, requires_grad=True)
    (w * v).sum().backward()
    assert v.grad.device == device and w.grad.device == torch.device("cpu")


def test_what_it_says_of_itself(device):
    x = torch.ones(2, device=device)
    assert not (x.is_cpu or x.is_cuda or x.is_meta)
    assert x.get_device() == device.index and x.type() == "torch.syft.FloatTensor"
    assert torch.zeros(2, device=x.device).device == device
    assert torch.ones(2).is_cpu and torch.ones(2).type() == "torch.FloatTensor"


def test_what_is_not_here_is_not_read_here(device):
    x = torch.ones(2, device=device)
    for read in (lambda: x.numpy(), lambda: torch.save(x, io.BytesIO()), lambda: pickle.dumps(x)):
        with pytest.raises(sy.exceptions.DataStaysPut):
            read()


def test_values_come_back(device, bob):
    x = torch.arange(3.0, device=device)
    assert torch.equal(x.cpu(), torch.arange(3.0)) and torch.equal(x.to("cpu"), torch.arange(3.0))
    assert x.to("cpu", torch.float64).dtype == torch.float64
    assert torch.equal(torch.zeros(3).copy_(x), torch.arange(3.0))
    assert torch.equal(torch.zeros_like(x, device="cpu"), torch.zeros(3))
    assert x.location is bob and x.tolist() == [0.0, 1.0, 2.0]


def test_gradients_go_back_from_here(device):
    w = torch.ones(3, device=device, requires_grad=True)
    here = (w * 2).cpu()
    assert type(here) is torch.Tensor and here.requires_grad
    (here * 3).sum().backward()
    assert torch.equal(w.grad.cpu(), torch.full((3,), 6.0))


def test_a_tensor_that_requires_grad_stays(device):
    w = torch.ones(3, requires_grad=True)
    with pytest.raises(NotSendable, match="requires grad to a device"):
        w.to(device)
    with pytest.raises(NotSendable, match="requires grad to a device"):
        (w * 2).to(device)
    with torch.no_grad():
        assert not w.to(device).requires_grad


def test_two_devices(device, alice):
    x, other = torch.ones(2, device=device), sy.device(alice)
    y = x.to(other)
    assert y.device == other != device and y.location is alice
    with pytest.raises(DeviceMismatch, match="same device, but the operands lie at bob and alice"):
        x + y
    assert torch.equal((x.to(other) + y).cpu(), torch.full((2,), 2.0))
    assert torch.zeros_like(x, device=other).location is alice


@pytest.mark.parametrize(
    "use",
    [
        lambda x, y: x + y,
        lambda x, y: y + x,
        lambda x, y: torch.cat([x, y]),
        lambda x, y: y.add_(x),
        lambda x, y: x.add_(y),
        lambda x, y: torch.add(x, x, out=y),
        lambda x, y: nn.Linear(2, 2)(x),
        lambda x, y: nn.Linear(2, 2).to(x.device)(y),
    ],
)
def test_a_tensor_that_is_here_is_refused(device, use):
    x, y = torch.ones(2, device=device), torch.ones(2)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        use(x, y)
    assert torch.equal(y, torch.ones(2))


def test_names(hook, bob, device):
    x = torch.ones(2)
    assert x.to("bob").location is bob and x.to(device="bob").device == device
    assert x.to("bob", torch.float64).dtype == torch.float64
    assert nn.Linear(2, 1).to("bob").weight.device == device
    assert x.to("bob").to("cpu").location is None
    for moved in (x, x.to("bob"), nn.Linear(2, 1)):
        with pytest.raises(UnknownWorker, match="knows no worker 'nobody' .it knows .*bob"):
            moved.to("nobody")
    with pytest.raises(UnknownWorker):
        sy.device("nobody")
    with pytest.raises(UnknownDevice, match="syft:99 .syft:1 is bob"):
        x.to(torch.device("syft", 99))
    with pytest.raises(UnknownDevice):
        torch.zeros(2, device="syft:99")
    with pytest.raises((RuntimeError, AssertionError), match="CUDA|cuda"):
        x.to("cuda" if not torch.cuda.is_available() else "cuda:99")


def test_a_worker_may_have_the_name_of_a_device_of_torch(hook, device):
    named = sy.VirtualWorker(hook, id="cpu")
    assert torch.ones(2).to("cpu").location is None
    assert torch.ones(2).to(sy.device(named)).location is named


def test_other_layouts(device):
    x = torch.eye(3).to_sparse()
    there = x.to(device)
    assert there.device == device and there.layout is torch.sparse_coo
    assert torch.equal(there.to_dense().cpu(), torch.eye(3))


def test_a_closed_hook_leaves_nothing_but_the_name():
    hook = sy.TorchHook(torch)
    bob = sy.VirtualWorker(hook, id="bob")
    theirs = vars(nn.Module)["to"].__wrapped__
    device = sy.device(bob)
    assert torch.ones(2, device=device).location is bob
    hook.close()
    assert vars(nn.Module)["to"] is theirs and "to" not in vars(torch.Tensor)
    for use in (lambda: torch.ones(2, device=device), lambda: torch.ones(2).to(device)):
        with pytest.raises(NotImplementedError, match="syft"):
            use()
    assert torch.equal(torch.ones(2).to("cpu"), torch.ones(2))
    again = sy.TorchHook(torch)
    alice = sy.VirtualWorker(again, id="alice")
    assert torch.ones(2, device=sy.device(alice)).location is alice
    again.close()


def test_nothing_is_left_at_the_worker(device, bob):
    x = torch.ones(2, device=device)
    y = (x + torch.zeros(2, device=device)).to(device)
    torch.empty(2, device=device)
    model = nn.Linear(2, 2).to(device)
    model(y).sum().backward()
    del x, y, model
    torch.ones(1, device=device)  # takes the ids of what was dropped along
    assert bob.objects_count() == 0


def test_a_bare_number_names_no_worker(device):
    for use in (
        lambda: torch.ones(2).to(0),
        lambda: torch.ones(2, device=device).to(0),
        lambda: torch.tensor([1.0], device=0),
        lambda: torch.zeros(2, device="syft"),
        lambda: nn.Linear(2, 2).to(0),
    ):
        with pytest.raises(UnknownDevice, match="No worker is the device syft"):
            use()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers(device, kind):
    here = kind(4, 3, batch_first=True)
    there = copy.deepcopy(here).to(device)
    x = torch.randn(2, 5, 4)
    here(x)[0].sum().backward()
    there(x.to(device))[0].sum().backward()
    for mine, theirs in zip(there.parameters(), here.parameters(), strict=True):
        close(mine.grad, theirs.grad)
    packed = nn.utils.rnn.pack_padded_sequence
    mine = there(packed(x.to(device), [5, 3], batch_first=True))[0].data
    close(mine, here(packed(x, [5, 3], batch_first=True))[0].data)
    assert mine.device == device


@pytest.mark.parametrize("kind", ["syft", "cpu"])
def test_autocast(device, kind):
    layer, x = nn.Linear(4, 4), torch.randn(2, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        theirs = layer(x)
    with torch.autocast(kind, dtype=torch.bfloat16):
        mine = layer.to(device)(x.to(device))
        assert torch.zeros(2, device=device).dtype == torch.float32
    assert mine.dtype == torch.bfloat16
    close(mine, theirs)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints(device, reentrant):
    here = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.5))
    there, x = copy.deepcopy(here).to(device), torch.randn(2, 4)

    def gradient(model, x):
        torch.manual_seed(1)
        x = x.detach().requires_grad_()
        checkpoint(model, x, use_reentrant=reentrant).sum().backward()
        return x.grad

    close(gradient(there, x.to(device)), gradient(here, x))


def test_modules_without_memory(device):
    layer = nn.Linear(3, 2, device="meta").to_empty(device=device)
    assert layer.weight.device == device and layer.weight.shape == (2, 3)
    assert nn.Linear(3, 2, device="meta").to_empty(device="cpu").weight.is_cpu


def test_a_row_takes_values_from_here(device):
    x = torch.zeros(2, 3, device=device)
    x[0] = torch.arange(3.0)
    assert torch.equal(x.cpu(), torch.tensor([[0.0, 1.0, 2.0], [0.0, 0.0, 0.0]]))
    with pytest.raises(NotSendable):
        x[0] = torch.ones(3, requires_grad=True) * 2


def test_batches_of_a_loader(device):
    data = torch.utils.data.TensorDataset(torch.arange(8.0).view(4, 2), torch.arange(4))
    for x, y in torch.utils.data.DataLoader(data, 2, num_workers=1):
        x, y = x.to(device, non_blocking=True), y.to(device)
        assert x.device == y.device == device and x.sum().item() >= 0


@pytest.mark.every_shell
def test_workers_of_every_shell(device, bob, shell):
    here = Gpt()
    there = copy.deepcopy(here).to(device)
    x, y = torch.randint(17, (2, 8)), torch.randint(17, (2, 8))
    mine = trained(there, OPTIMIZERS[1](there.parameters()), x.to(device), y.to(device))
    assert mine == pytest.approx(trained(here, OPTIMIZERS[1](here.parameters()), x, y), rel=1e-5)
    assert torch.equal(torch.arange(3, device=device).cpu(), torch.arange(3))
    there.to("cpu")


def test_what_is_private_stays(device, bob, alice):
    mine = torch.ones(2).private_tensor(["ann"])
    with pytest.raises(PermissionDenied):
        mine.to(device)
    x = mine.send(bob, user="ann").to(device)
    for read in (
        lambda: x.cpu(),
        lambda: (x + 1).to("cpu"),
        lambda: torch.zeros(2).copy_(x),
        lambda: x.to(sy.device(alice)),
        lambda: x.sum().item(),
    ):
        with pytest.raises(PermissionDenied):
            read()
    as_ann = mine.to(sy.device(bob.as_user("ann")))
    assert torch.equal((as_ann + 1).cpu(), torch.full((2,), 2.0))
