"""Attacks of a stranger by hidden sizes, private indices, aliases, other layouts, and draws.

See :mod:`test_fresh_attacks`, which says what an attack is.
"""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import torch
from torch.nn import functional as F

from tests.privacy.fresh_world import INDICES, Attacks, World, tests_of

ATTACKS = Attacks()

ROWS = torch.tensor([[1.0, 2.0], [3.0, 4.0], [-5.0, 6.0], [-7.0, 8.0]])
"""The first column of the other world's rows has one number above zero, and that of these two."""
OTHER_ROWS = torch.tensor([[1.0, 2.0], [-3.0, 4.0], [-5.0, 6.0], [-7.0, 8.0]])


def chosen_rows(w: World) -> Any:
    """Two rows in one world and one in the other."""
    x = w.secret(ROWS, OTHER_ROWS)
    return x[x[:, 0] > 0]


# ------------------------------------------------------------------------------- hidden sizes


@ATTACKS.enter
def rows_that_are_normalized(w: World) -> Any:
    """Torch refuses to normalize one row in training."""
    rows = chosen_rows(w)
    batch, instance = torch.nn.BatchNorm1d(2).send(w.eve), torch.nn.InstanceNorm1d(2).send(w.eve)
    tried = w.tried(
        lambda: batch(rows),
        lambda: batch.running_mean,
        lambda: batch.num_batches_tracked,
        lambda: instance(rows.t().unsqueeze(0)),
        lambda: F.group_norm(rows, 2),
        lambda: torch.nn.LayerNorm(2).send(w.eve)(rows).sum().backward(),
        lambda: batch.eval()(rows),
    )
    return tried, batch.state_dict()


@ATTACKS.enter
def rows_that_take_another_form(w: World) -> Any:
    rows = chosen_rows(w)
    return w.tried(
        lambda: rows.view(-1, 4),
        lambda: rows.reshape(2, 2),
        lambda: rows.view(1, 2),
        lambda: rows.flatten().unflatten(0, (2, 2)),
        lambda: rows.unfold(0, 2, 1),
        lambda: rows.chunk(2),
        lambda: rows.split([1, 1]),
        lambda: rows.narrow(0, 1, 1),
        lambda: rows[-2],
        lambda: rows.squeeze(0),
        lambda: rows.squeeze(0).dim(),
        lambda: rows.diagonal(),
        lambda: rows.det(),
        lambda: rows.mm(rows),
        lambda: torch.linalg.inv(rows),
        lambda: rows.expand(2, 2),
        lambda: rows.unbind(0),
        lambda: rows.view(torch.int32).view(torch.complex64),
        lambda: rows.movedim(0, 1).is_contiguous(),
    )


@ATTACKS.enter
def rows_that_are_layered(w: World) -> Any:
    rows = chosen_rows(w)
    line = rows.view(1, 1, -1)
    return w.tried(
        lambda: F.conv1d(line, w.public(1, 1, 1).view(1, 1, 3)),
        lambda: F.max_pool1d(line, 3),
        lambda: F.avg_pool1d(line, 4),
        lambda: F.adaptive_avg_pool1d(line, 3),
        lambda: F.pad(line, (2, 0), mode="reflect"),
        lambda: F.pad(rows, (1, 1)),
        lambda: F.interpolate(line, size=3),
        lambda: F.interpolate(line, scale_factor=2.0),
        lambda: F.softmax(rows, 0),
        lambda: F.pixel_shuffle(line.unsqueeze(0), 1),
        lambda: torch.fft.fft(line),
        lambda: torch.fft.rfft(line, n=4),
        lambda: torch.stft(rows.flatten(), 3, return_complex=True),
        lambda: F.cosine_similarity(rows, w.public(1, 2, 3, 4).view(2, 2)),
        lambda: torch.cdist(rows, rows),
        lambda: F.pdist(rows),
    )


@ATTACKS.enter
def rows_and_public_tensors(w: World) -> Any:
    rows, z, mask = chosen_rows(w), w.public(1, 2, 3, 4).view(2, 2), w.secret(*MASKS)
    wide, line = w.public(), w.public(1, 2, 3, 4)
    return w.tried(
        lambda: torch.stack([rows, z]),
        lambda: torch.cat([rows, z], 1),
        lambda: z.add_(rows),
        lambda: z.copy_(rows),
        lambda: z[: len(rows)],
        lambda: wide[:2].copy_(rows[:, 0]),
        lambda: wide.masked_scatter_(mask, line),
        lambda: wide.masked_scatter_(mask, line[:1]),
        lambda: wide.__setitem__(mask, line[:2]),
        lambda: wide.index_put_((mask,), line[0]),
        lambda: torch.where(mask),
        lambda: torch.meshgrid(rows[:, 0], line, indexing="ij"),
        lambda: torch.broadcast_tensors(rows, z),
        lambda: torch.nn.utils.rnn.pad_sequence([rows, z]),
        lambda: torch.block_diag(rows, z),
        lambda: torch.einsum("ij,kj->ik", rows, z),
        lambda: torch.einsum("ij,ij->", rows, z),
        lambda: (z, wide),
    )


MASKS = [True, True, False, False], [True, False, False, False]


@ATTACKS.enter
def rows_that_train(w: World) -> Any:
    """A loss of private rows, with targets of a private and of a public number."""
    rows, y = chosen_rows(w), w.secret([0, 1, 0, 1], [1, 1, 1, 0])
    mask = w.secret(*MASKS)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5)).send(w.eve)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    two = torch.tensor([0, 1]).send(w.eve)

    def step(target: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(rows), target)
        loss.backward()
        optimizer.step()
        return loss

    return w.tried(
        lambda: step(y[mask]),
        lambda: step(two),
        lambda: step(y[:1]),
        lambda: F.mse_loss(model(rows), two.float().view(2, 1)),
        lambda: [*model.parameters()],
        lambda: torch.rand(2).send(w.eve) + w.eve.torch.rand(2),
    )


@ATTACKS.enter
def numbers_of_what_is_chosen(w: World) -> Any:
    rows = chosen_rows(w)
    line = rows.flatten()
    return w.tried(
        lambda: rows.shape[1],
        lambda: rows.shape,
        lambda: rows.size(0),
        lambda: rows.numel(),
        lambda: [it for it in rows],
        lambda: line.topk(3),
        lambda: line.kthvalue(3),
        lambda: line.median(),
        lambda: line.quantile(0.5),
        lambda: line.mode(),
        lambda: line.sort(),
        lambda: line.argsort()[2],
        lambda: line.cumsum(0)[3],
        lambda: line.diff(n=3),
        lambda: line.std(),
        lambda: torch.trapezoid(line),
        lambda: line.logcumsumexp(0),
        lambda: line.take(torch.tensor([3]).send(w.eve)),
        lambda: line.index_select(0, torch.tensor([3]).send(w.eve)),
        lambda: line.tril() if line.dim() == 2 else rows.tril(),
        lambda: torch.vander(line),
        lambda: torch.cartesian_prod(line, line),
        lambda: torch.normal(line, 1.0),
        lambda: torch.multinomial(line.abs(), 3),
    )


@ATTACKS.enter
def memory_of_what_is_chosen(w: World) -> Any:
    rows, z = chosen_rows(w), w.public()
    return w.tried(
        lambda: rows.resize_(2, 2),
        lambda: rows.clone().resize_(4),
        lambda: rows.as_strided((2, 2), (2, 1)),
        lambda: rows.untyped_storage().nbytes(),
        lambda: rows.element_size() * rows.nelement(),
        lambda: rows.nbytes,
        lambda: z.set_(rows),
        lambda: z.resize_as_(rows),
        lambda: z.view_as(rows),
        lambda: z.expand_as(rows),
        lambda: z.new_zeros(rows.shape),
        lambda: z,
    )


@ATTACKS.enter
def what_is_the_only_one(w: World) -> Any:
    """Unique numbers, non-zero places, and what follows from how many there are."""
    i, z = w.secret([1, 1, 2, 2], [1, 1, 1, 1]), w.public(1, 2, 3, 4)
    return w.tried(
        lambda: i.unique().sum(),
        lambda: i.unique() + z[:2],
        lambda: i.unique(return_inverse=True)[1],
        lambda: torch.unique_consecutive(i, return_counts=True)[1],
        lambda: (i - 1).nonzero().squeeze(1),
        lambda: z[(i - 1).nonzero().squeeze(1)].sum(),
        lambda: (i - 1).argwhere().t(),
        lambda: torch.nonzero(i - 1, as_tuple=True),
        lambda: torch.nonzero_static(i - 1, size=2),
        lambda: (i - 1).count_nonzero(),
        lambda: z.masked_select(i > 1).prod(),
        lambda: torch.isin(i, torch.tensor([2]).send(w.eve)),
    )


# ------------------------------------------------------------------------------ private indices


@ATTACKS.enter
def embeddings(w: World) -> Any:
    """One with a greatest norm writes to the rows that are looked up."""
    i, offsets = w.secret([0, 1], [1, 1]), w.secret([0, 1], [0, 2])
    outside = w.secret(*INDICES)
    weight = torch.full((4, 2), 3.0).requires_grad_().send(w.eve)
    plain = torch.full((4, 2), 3.0).send(w.eve)
    bag = torch.nn.EmbeddingBag(4, 2, mode="sum").send(w.eve)
    sparse = torch.nn.Embedding(4, 2, sparse=True).send(w.eve)
    return w.tried(
        lambda: F.embedding(i, plain, max_norm=1.0),
        lambda: plain,
        lambda: F.embedding(i, weight, scale_grad_by_freq=True).sum().backward(),
        lambda: weight,
        lambda: F.embedding(outside, weight, padding_idx=1),
        lambda: bag(torch.tensor([0, 1]).send(w.eve), offsets),
        lambda: bag(i, torch.tensor([0]).send(w.eve)).sum().backward(),
        lambda: bag.weight,
        lambda: sparse(i).sum().backward(),
        lambda: sparse.weight.grad,
        lambda: torch.optim.SparseAdam(sparse.parameters()).step(),
        lambda: sparse.weight,
    )


@ATTACKS.enter
def places_that_are_written(w: World) -> Any:
    i, x = w.secret([0, 0], [0, 1]), w.secret([1.0, 2.0], [3.0, 4.0])
    made = [w.public() for _ in range(6)]
    views = [it[:1] for it in made]
    tried = w.tried(
        lambda: made[0].put_(i, w.public(1, 2)),
        lambda: made[1].index_copy_(0, i, x),
        lambda: made[2].scatter_reduce_(0, i, w.public(1, 2), "sum"),
        lambda: made[3].index_reduce_(0, i, w.public(1, 2), "prod"),
        lambda: made[4].scatter_add_(0, i, w.public(1, 2)),
        lambda: made[5].__setitem__(i, 1.0),
        lambda: w.public().take_along_dim(i),
        lambda: torch.index_fill(w.public(), 0, i, 2.0),
    )
    return tried, made, views


@ATTACKS.enter
def counts_and_edges(w: World) -> Any:
    x, z = w.secret(), w.public(1, 2, 3, 4)
    i, edges = w.secret([0, 1, 1], [2, 2, 9]), w.secret([1.0, 2.0], [2.0, 1.0])
    return w.tried(
        lambda: torch.histc(x, 4),
        lambda: torch.histogram(x, 3),
        lambda: torch.histogram(z, edges),
        lambda: torch.histogramdd(x.view(2, 2), [2, 2]),
        lambda: torch.bincount(i),
        lambda: torch.bincount(i, minlength=3),
        lambda: torch.bincount(i, weights=z[:3], minlength=12),
        lambda: torch.bincount(torch.tensor([0, 1]).send(w.eve), weights=edges),
        lambda: torch.bucketize(z, edges),
        lambda: torch.searchsorted(edges, z),
        lambda: torch.searchsorted(z, x, sorter=torch.arange(4).send(w.eve)),
        lambda: torch.histc(x, 2, min=0, max=float(2)),
    )


@ATTACKS.enter
def lengths_that_are_private(w: World) -> Any:
    lengths, z = w.secret([1, 2], [2, 2]), w.public(1, 2, 3)
    logs = torch.zeros(4, 1, 3).send(w.eve)
    return w.tried(
        lambda: z[:2].repeat_interleave(lengths),
        lambda: z[:2].repeat_interleave(lengths, output_size=3),
        lambda: torch.segment_reduce(z, "sum", lengths=lengths),
        lambda: F.ctc_loss(logs, torch.ones(1, 2).long().send(w.eve), (4,), lengths[:1]),
        lambda: F.ctc_loss(
            logs, torch.ones(1, 2).long().send(w.eve), torch.tensor([4]).send(w.eve), lengths[:1]
        ),
        lambda: z.split(lengths.tolist()),
        lambda: z.tensor_split(lengths),
        lambda: torch.nested.nested_tensor([z, z[: lengths[0]]]),
        lambda: F.one_hot(lengths),
        lambda: F.one_hot(lengths, 2),
        lambda: F.nll_loss(z.view(1, 3), lengths[:1], ignore_index=2),
        lambda: F.multi_margin_loss(z.view(1, 3), lengths[:1]),
        lambda: F.gaussian_nll_loss(z[:2], z[:2], (lengths - 2).float()),
    )


# ---------------------------------------------------------------------------- views and aliases


@ATTACKS.enter
def other_views_of_memory(w: World) -> Any:
    x, made = w.secret(), [w.public() for _ in range(5)]
    bytes_of = [it.view(torch.uint8) for it in made]
    pairs = torch.view_as_complex(made[3].view(2, 2))
    tried = w.tried(
        lambda: made[0].view(torch.int32).copy_(x.view(torch.int32)),
        lambda: bytes_of[1][:4].copy_(x.view(torch.uint8)[:4]),
        lambda: made[2].as_strided((2, 2), (1, 1)).copy_(x.view(2, 2)),
        lambda: pairs.real.copy_(x[:2]),
        lambda: pairs.imag.mul_(2),
        lambda: made[4].unfold(0, 2, 1)[1].add_(x[:2]),
        lambda: pairs.conj().imag,
        lambda: made[4].diagonal() if made[4].dim() == 2 else made[4].view(2, 2).diagonal(),
    )
    return tried, made, bytes_of, pairs


@ATTACKS.enter
def memory_at_an_offset(w: World) -> Any:
    x, z, u = w.secret(), w.public(), w.public(9, 9)
    alias = u.detach()
    tried = w.tried(
        lambda: z.set_(x, 1, (2,), (1,)),
        lambda: u.set_(x * 1, 1, (2,), (1,)),
        lambda: z.set_(x.untyped_storage()),
        lambda: x[1:].storage_offset(),
        lambda: x.data.copy_(z),
        lambda: x.detach_(),
        lambda: (x * 1).detach_().requires_grad_(),
        lambda: (x * 1).data.fill_(0.0),
        lambda: (x * 1).zero_(),
        lambda: torch.zeros_like(x) * 1,
        lambda: x.new_ones(2) + 0,
        lambda: torch.empty_like(x, memory_format=torch.preserve_format).fill_(1),
    )
    return tried, z, u, alias


@ATTACKS.enter
def outputs_of_many_forms(w: World) -> Any:
    x, z = w.secret(), w.public(0, 0, 0, 0, 0, 0, 0, 0)
    strided, short, number = z[::2], w.public(0), torch.zeros(()).send(w.eve)
    truth, wide = torch.zeros(4, dtype=torch.bool).send(w.eve), z.view(2, 4)
    return w.tried(
        lambda: torch.mul(x, 2, out=strided),
        lambda: torch.sub(x, 1, out=short),
        lambda: torch.sum(x, 0, out=number),
        lambda: torch.gt(x, 1, out=truth),
        lambda: torch.max(x, 0, out=(number, torch.zeros((), dtype=torch.int64).send(w.eve))),
        lambda: torch.stack([x, x], out=wide),
        lambda: torch.index_select(x, 0, torch.tensor([0]).send(w.eve), out=short),
        lambda: torch.frac(x, out=x),
        lambda: torch.cumsum(x, 0, out=z[4:]),
        lambda: (z, strided, short, number, truth),
    )


@ATTACKS.enter
def several_layouts(w: World) -> Any:
    """Layouts are made of private parts, and private values are written to parts of public ones."""
    x, i = w.secret([1.0, 2.0], [3.0, 0.0]), w.secret([[0, 1]], [[0, 0]])
    crow = w.secret([0, 1, 2], [0, 0, 2])
    made = torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.tensor([1.0, 1.0]), (4,))
    public = made.coalesce().send(w.eve)
    return w.tried(
        lambda: torch.sparse_coo_tensor(i, w.public(1, 2), (4,)).coalesce().values(),
        lambda: torch.sparse_coo_tensor(torch.tensor([[0, 1]]).send(w.eve), x, (4,)).to_dense(),
        lambda: torch.sparse_coo_tensor(i, x),
        lambda: torch.sparse_csr_tensor(crow, torch.tensor([0, 1]).send(w.eve), w.public(1, 2)),
        lambda: public.values().copy_(x),
        lambda: public.to_dense(),
        lambda: public * x.sum(),
        lambda: torch.sparse.sum(public * x.sum()),
        lambda: x.view(1, 2).to_sparse().coalesce().indices(),
        lambda: x.to_mkldnn().to_dense(),
        lambda: torch.sparse.addmm(x.view(2, 1), public.view(2, 2), x.view(2, 1)),
        lambda: public,
    )


@ATTACKS.enter
def nested_and_jagged(w: World) -> Any:
    x, z = w.secret(), w.public(1, 2)
    chosen = x[x > 1]
    return w.tried(
        lambda: torch.nested.nested_tensor([x, z]),
        lambda: torch.nested.as_nested_tensor([x, chosen]).to_padded_tensor(0.0),
        lambda: torch.nested.nested_tensor([chosen, z], layout=torch.jagged).offsets(),
        lambda: torch._nested_tensor_from_mask(x.view(1, 4, 1), x.view(1, 4) > 1),
        lambda: torch.nested.nested_tensor_from_jagged(z, w.secret([0, 1, 2], [0, 2, 2])),
        lambda: torch.nested.to_padded_tensor(chosen, 0.0),
        lambda: x.abs().sum(),
    )


@ATTACKS.enter
def numbers_with_a_scale(w: World) -> Any:
    x, s, z = w.secret(), w.secret([0.1, 0.2], [0.3, -0.4]), w.public(1, 2, 3, 4)
    zeros = torch.zeros(2).long().send(w.eve)
    return w.tried(
        lambda: torch.quantize_per_channel(z.view(2, 2), s, zeros, 0, torch.quint8).int_repr(),
        lambda: torch.quantize_per_tensor(z, s[0], zeros[0], torch.quint8).dequantize(),
        lambda: torch.quantize_per_tensor_dynamic(x, torch.quint8, False).q_scale(),
        lambda: torch.fake_quantize_per_channel_affine(z.view(2, 2), s, zeros.int(), 0, 0, 255),
        lambda: torch.fake_quantize_per_tensor_affine(z, s[0], zeros[0].int(), 0, 255),
        lambda: x.half().max(),
        lambda: x.to(torch.uint8),
        lambda: x.bfloat16().frexp(),
        lambda: torch.ldexp(z[:2], s),
        lambda: torch.round(x, decimals=1),
    )


# ------------------------------------------------------------------------------------- draws


@ATTACKS.enter
def draws_with_private_rates(w: World) -> Any:
    x, z = w.secret([0.0, 0.0, 0.0, 0.0], [1.0, 0.5, 1.0, 0.5]), w.public()
    return w.tried(
        lambda: torch.bernoulli(x),
        lambda: z.bernoulli_(x),
        lambda: torch.multinomial(x, 2),
        lambda: torch.multinomial(x, 2, replacement=True),
        lambda: torch.normal(z, x),
        lambda: torch.normal(z, x - 1),
        lambda: torch.binomial(x * 9, x),
        lambda: torch._standard_gamma(x),
        lambda: torch._sample_dirichlet(x),
        lambda: z.uniform_(0, x.max()),
        lambda: F.dropout(z + 1, x.max()),
        lambda: F.rrelu(x - 0.7, training=True),
        lambda: F.fractional_max_pool2d(x.view(1, 2, 2), 1, output_size=1),
        lambda: w.eve.torch.rand(3),
        lambda: w.eve.torch.randperm(4),
    )


@ATTACKS.enter
def draws_that_follow(w: World) -> Any:
    """How many numbers a private command draws does not show in what is drawn later."""
    x = w.secret([0.5, 0.5, 0.5, 0.5], [90.0, 90.0, 90.0, 90.0])
    chosen = x[x > 1]

    def later() -> Any:
        return w.eve.torch.randn(2), w.public().uniform_(), torch.rand(2)

    return w.tried(
        lambda: torch.poisson(x),
        later,
        lambda: torch.rand_like(chosen),
        later,
        lambda: F.dropout(chosen),
        later,
        lambda: F.alpha_dropout(chosen, training=True),
        later,
        lambda: chosen.new_empty(3).normal_(),
        later,
        lambda: F.gumbel_softmax(chosen, hard=True),
        later,
        lambda: torch.randint_like(x, 9),
        later,
    )


# ------------------------------------------------------------------- what leaves as another thing


@ATTACKS.enter
def files_and_copies(w: World) -> Any:
    x = w.secret(grad=True)
    layer = torch.nn.Linear(4, 1).send(w.eve)
    layer.weight.data = (x * 1).view(1, 4)

    def saved(it: Any) -> Any:
        file = io.BytesIO()
        torch.save(it, file)
        return len(file.getvalue())

    return w.tried(
        lambda: saved(x),
        lambda: saved(layer.state_dict()),
        lambda: saved(copy.deepcopy([x, x * 1])),
        lambda: pickle.loads(pickle.dumps([x])),
        lambda: x.__reduce_ex__(2),
        lambda: x.numpy(force=True),
        lambda: x.__array__(),
        lambda: memoryview(x),  # type: ignore[arg-type]
        lambda: x.share_memory_(),
        lambda: copy.deepcopy(layer).weight.copy().get(),
        lambda: layer.copy().get().weight,
        lambda: x.tolist(),
        lambda: torch.tensor(x),
        lambda: torch.asarray(x),
        lambda: torch.nn.utils.parameters_to_vector(layer.parameters()),
    )


@ATTACKS.enter
def texts_of_a_pointer(w: World) -> Any:
    x = w.secret()
    chosen = x[x > 1]

    def texts(it: Any) -> Any:
        return w.tried(
            lambda: str(it),
            lambda: f"{it}",
            lambda: format(it, ".2f"),
            lambda: it._repr_html_(),
            lambda: bool(it),
            lambda: float(it),
            lambda: complex(it),
            lambda: it in [1.0],
            lambda: 2.5 in it,
            lambda: hash(it) == hash(it),
            lambda: it == it,
            lambda: {it: 1}.get(it),
            lambda: sorted([it, it]),
            lambda: max(it, it),
            lambda: [*range(it)],
            lambda: dir(it) == dir(it),
        )

    return texts(x), texts(chosen), texts(x.max()), texts(x.sum() > 3)


test_nothing_is_learned_of_what_is_private, test_what_is_public_is_learned = tests_of(ATTACKS)
