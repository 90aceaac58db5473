"""Ten larger models, made from configurations and without weights from elsewhere, as repositories
have them.  Each is trained for a step: ``step`` returns what it is judged by."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class GPTConfig:
    """The shape of a small GPT-2."""

    vocabulary: int = 50
    context: int = 16
    width: int = 32
    heads: int = 4
    layers: int = 2
    dropout: float = 0.0


class CausalAttention(nn.Module):
    """Attention to the past, with the mask of GPT-2 in a buffer."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)
        mask = torch.tril(torch.ones(config.context, config.context))
        self.register_buffer("mask", mask.view(1, 1, config.context, config.context))

    def forward(self, x: Any) -> Any:
        b, t, c = x.size()
        q, k, v = self.qkv(x).split(c, dim=2)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        y = F.softmax(scores, dim=-1) @ v
        return self.out(y.transpose(1, 2).contiguous().view(b, t, c))


class Block(nn.Module):
    """Attention and a network, each added to its input."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.attention = CausalAttention(config)
        self.mlp = nn.Sequential(
            nn.Linear(config.width, 4 * config.width),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * config.width, config.width),
            nn.Dropout(config.dropout),
        )

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """A language model that generates."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.places = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.layers)])
        self.ln = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.tokens.weight = self.head.weight
        self.apply(self._init)

    def _init(self, module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def forward(self, ids: Any, targets: Any = None) -> Any:
        device = ids.device
        _, t = ids.size()
        assert t <= self.config.context, "the sequence is too long"
        x = self.tokens(ids) + self.places(torch.arange(0, t, dtype=torch.long, device=device))
        for block in self.blocks:
            x = block(x)
        if targets is None:
            return self.head(self.ln(x[:, [-1], :])), None
        logits = self.head(self.ln(x))
        flat = logits.view(-1, logits.size(-1))
        return logits, F.cross_entropy(flat, targets.reshape(-1), ignore_index=-1)

    @torch.no_grad()
    def generate(self, ids: Any, new: int, top_k: int = 5) -> Any:
        """Continue sequences, taking the likeliest token of the best each time."""
        for _ in range(new):
            recent = ids if ids.size(1) <= self.config.context else ids[:, -self.config.context :]
            logits, _ = self(recent)
            logits = logits[:, -1, :] / 0.8
            best, _ = torch.topk(logits, min(top_k, logits.size(-1)))
            logits[logits < best[:, [-1]]] = -float("inf")
            ids = torch.cat((ids, F.softmax(logits, dim=-1).argmax(-1, keepdim=True)), dim=1)
        return ids


class ViT(nn.Module):
    """A vision transformer: patches, a class token and learned positions."""

    def __init__(self, image: int = 16, patch: int = 4, width: int = 32, classes: int = 5) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, kernel_size=patch, stride=patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Any) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        return self.head(self.norm(self.encoder(x))[:, 0])


class Bottleneck(nn.Module):
    """The block of ResNet-50."""

    expansion = 4

    def __init__(self, inside: int, width: int, stride: int = 1) -> None:
        super().__init__()
        out = width * self.expansion
        self.conv1 = nn.Conv2d(inside, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inside != out:
            self.downsample = nn.Sequential(
                nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: Any) -> Any:
        identity = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        x += identity
        return self.relu(x)


class ResNet(nn.Module):
    """The shape of ResNet-50, four channels wide."""

    def __init__(self, blocks: tuple[int, ...] = (3, 4, 6, 3), width: int = 4) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        inside, layers = width, []
        for i, count in enumerate(blocks):
            for j in range(count):
                layers.append(Bottleneck(inside, width * 2**i, 2 if i and not j else 1))
                inside = width * 2**i * Bottleneck.expansion
        self.layers = nn.Sequential(*layers)
        self.pool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(inside, 5)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Any) -> Any:
        return self.fc(torch.flatten(self.pool(self.layers(self.stem(x))), 1))


class UNet(nn.Module):
    """Down, up, and what was seen on the way down; odd sizes are padded."""

    def __init__(self, widths: tuple[int, ...] = (4, 8, 16)) -> None:
        super().__init__()
        self.down, self.up, self.join = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        inside = 1
        for width in widths:
            self.down.append(self.double(inside, width))
            inside = width
        for width in reversed(widths[:-1]):
            self.up.append(nn.ConvTranspose2d(inside, width, 2, 2))
            self.join.append(self.double(2 * width, width))
            inside = width
        self.out = nn.Conv2d(inside, 1, 1)

    @staticmethod
    def double(inside: int, width: int) -> nn.Module:
        """Two convolutions."""
        return nn.Sequential(
            nn.Conv2d(inside, width, 3, padding=1),
            nn.GroupNorm(2, width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
        )

    def forward(self, x: Any) -> Any:
        seen = []
        for i, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if i else x)
            seen.append(x)
        for up, join, skip in zip(self.up, self.join, seen[-2::-1], strict=True):
            x = up(x)
            high, wide = skip.shape[2] - x.shape[2], skip.shape[3] - x.shape[3]
            x = join(torch.cat([skip, F.pad(x, (0, wide, 0, high))], dim=1))
        return self.out(x)


class Tagger(nn.Module):
    """Tags of words: an LSTM in both directions over padded sentences."""

    def __init__(self, words: int = 30, tags: int = 4, width: int = 12) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.lstm = nn.LSTM(width, width, num_layers=2, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(2 * width, tags)
        self.width = width

    def forward(self, ids: Any) -> Any:
        first = torch.zeros(4, ids.size(0), self.width), torch.zeros(4, ids.size(0), self.width)
        out, _ = self.lstm(self.words(ids), first)
        mask = (ids != 0).unsqueeze(-1)
        return self.tags(out).masked_fill(~mask, 0.0)


class VAE(nn.Module):
    """An autoencoder whose code is drawn."""

    def __init__(self, code: int = 3) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 12), nn.ReLU())
        self.mean, self.logvar = nn.Linear(12, code), nn.Linear(12, code)
        self.decoder = nn.Sequential(nn.Linear(code, 12), nn.ReLU(), nn.Linear(12, 16))

    def forward(self, x: Any) -> Any:
        hidden = self.encoder(x)
        mean, logvar = self.mean(hidden), self.logvar(hidden)
        code = mean + torch.randn(mean.shape) * torch.exp(0.5 * logvar)
        return torch.sigmoid(self.decoder(code)), mean, logvar


class GAN(nn.Module):
    """A generator and a critic, each with an optimizer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(),
                                       nn.Linear(16, 8), nn.Tanh())  # fmt: skip
        self.critic = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))

    def fake(self, count: int) -> Any:
        """Samples made of noise."""
        return self(torch.randn(count, 4))

    def forward(self, noise: Any) -> Any:
        return self.generator(noise)


class GraphNetwork(nn.Module):
    """Messages along edges, added up at their ends, divided by how many came."""

    def __init__(self, width: int = 8, rounds: int = 2, classes: int = 3) -> None:
        super().__init__()
        self.first = nn.Linear(5, width)
        self.messages = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(rounds))
        self.updates = nn.ModuleList(nn.GRUCell(width, width) for _ in range(rounds))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Any, edges: Any) -> Any:
        source, target = edges
        x = F.relu(self.first(x))
        degree = torch.zeros(x.size(0)).index_add_(0, target, torch.ones(target.size(0)))
        for message, update in zip(self.messages, self.updates, strict=True):
            sent = F.relu(message(torch.cat([x[source], x[target]], dim=-1)))
            received = torch.zeros_like(x).index_add(0, target, sent)
            x = update(received / degree.clamp(min=1)[:, None], x)
        return self.head(x)


class MixtureOfExperts(nn.Module):
    """Each token goes to the best two of four experts; a loss keeps the load even."""

    def __init__(self, width: int = 8, experts: int = 4, best: int = 2) -> None:
        super().__init__()
        self.best = best
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 16), nn.SiLU(), nn.Linear(16, width))
            for _ in range(experts)
        )

    def forward(self, x: Any) -> Any:
        tokens = x.reshape(-1, x.shape[-1])
        scores = self.gate(tokens).softmax(dim=-1)
        weights, chosen = scores.topk(self.best, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        out = torch.zeros_like(tokens)
        for i, expert in enumerate(self.experts):
            row, place = torch.where(chosen == i)
            if row.numel() == 0:
                continue
            out.index_add_(0, row, expert(tokens[row]) * weights[row, place, None])
        used = F.one_hot(chosen, len(self.experts)).float().mean(dim=(0, 1))
        return out.view_as(x), len(self.experts) * (used * scores.mean(0)).sum()


class Diffusion(nn.Module):
    """Predicts the noise that was added to an image, at a time in sinusoids."""

    def __init__(self, steps: int = 20, width: int = 8) -> None:
        super().__init__()
        betas = torch.linspace(1e-4, 0.02, steps)
        self.register_buffer("kept", torch.cumprod(1 - betas, dim=0))
        self.betas = betas
        self.steps, self.width = steps, width
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.into, self.out = nn.Conv2d(1, width, 3, padding=1), nn.Conv2d(width, 1, 3, padding=1)

    def embed(self, t: Any) -> Any:
        """Times as sinusoids."""
        half = self.width // 2
        rates = torch.exp(-math.log(10000) * torch.arange(half, device=t.device) / half)
        angles = t[:, None].float() * rates[None]
        return torch.cat([angles.sin(), angles.cos()], dim=-1)

    def predict(self, x: Any, t: Any) -> Any:
        """The noise in an image."""
        return self.out(F.silu(self.into(x) + self.time(self.embed(t))[:, :, None, None]))

    def forward(self, x: Any) -> Any:
        t = torch.randint(0, self.steps, (x.shape[0],), device=x.device)
        noise = torch.randn_like(x)
        kept = self.kept[t].view(-1, 1, 1, 1)
        return F.mse_loss(self.predict(kept.sqrt() * x + (1 - kept).sqrt() * noise, t), noise)


# ------------------------------------------------------------------------------------------ steps


def train(model: Any, optimizer: Any, loss: Any) -> Any:
    """One step."""
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def adam(model: Any) -> Any:
    """An optimizer."""
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def classify(model: Any, x: Any, y: Any) -> Any:
    """A step of a classifier, and what it says then."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    loss = train(model, optimizer, F.cross_entropy(model(x), y))
    model.eval()
    with torch.no_grad():
        return loss, model(x).argmax(1), (model(x).argmax(1) == y).float().mean()


def write(model: Any, ids: Any) -> Any:
    """A step of a language model, and a text."""
    logits, loss = model(ids[:, :-1], ids[:, 1:])
    loss = train(model, adam(model), loss)
    model.eval()
    return loss, logits.detach(), model.generate(ids[:, :4], 6)


def segment(model: Any, x: Any, y: Any) -> Any:
    """A step with two losses of masks."""
    logits = model(x)
    shared = (logits.sigmoid() * y).sum() * 2 / (logits.sigmoid().sum() + y.sum() + 1e-6)
    return train(model, adam(model), F.binary_cross_entropy_with_logits(logits, y) + 1 - shared)


def tag(model: Any, ids: Any, tags: Any) -> Any:
    """A step of a tagger; padding does not count."""
    loss = F.cross_entropy(model(ids).flatten(0, 1), tags.flatten(), ignore_index=-100)
    return train(model, adam(model), loss), model(ids).argmax(-1)


def encode(model: Any, x: Any) -> Any:
    """A step of an autoencoder."""
    back, mean, logvar = model(x)
    divergence = -0.5 * torch.sum(1 + logvar - mean.pow(2) - logvar.exp())
    loss = F.binary_cross_entropy(back, x, reduction="sum") + divergence
    return train(model, adam(model), loss)


def compete(model: Any, real: Any) -> Any:
    """A step of the critic, and one of the generator."""
    critic, generator = adam(model.critic), adam(model.generator)
    fake = model(torch.randn_like(real[:, :4]))
    score = model.critic(real)
    loss = F.binary_cross_entropy_with_logits(score, torch.ones_like(score))
    score = model.critic(fake.detach())
    loss = loss + F.binary_cross_entropy_with_logits(score, torch.zeros_like(score))
    first = train(model.critic, critic, loss)
    score = model.critic(fake)
    loss = F.binary_cross_entropy_with_logits(score, torch.ones_like(score))
    return first, train(model.generator, generator, loss)


def label(model: Any, x: Any, edges: Any, y: Any, known: Any) -> Any:
    """A step on the nodes whose class is known."""
    loss = F.cross_entropy(model(x, edges)[known], y[known])
    return train(model, adam(model), loss), model(x, edges).argmax(1)


def mix(model: Any, x: Any) -> Any:
    """A step with the loss of the load."""
    out, load = model(x)
    return train(model, adam(model), F.mse_loss(out, x) + 0.01 * load), out.detach()


def denoise(model: Any, x: Any) -> Any:
    """A step of a diffusion model."""
    return train(model, adam(model), model(x))


@dataclass(frozen=True)
class Larger:
    """A model, its inputs, and a step of training."""

    make: Callable[[], nn.Module]
    inputs: Callable[[], list[torch.Tensor]]
    step: Callable[..., Any]
    drawn: bool = False


MODELS: dict[str, Larger] = {
    "gpt": Larger(lambda: GPT(GPTConfig()), lambda: [torch.randint(50, (2, 13))], write),
    "vit": Larger(ViT, lambda: [torch.randn(3, 3, 16, 16), torch.randint(5, (3,))], classify),
    "resnet": Larger(ResNet, lambda: [torch.randn(4, 3, 32, 32), torch.randint(5, (4,))], classify),
    "unet": Larger(
        UNet, lambda: [torch.randn(2, 1, 14, 18), (torch.rand(2, 1, 14, 18) > 0.5).float()], segment
    ),
    "tagger": Larger(Tagger, lambda: [torch.randint(30, (3, 7)), torch.randint(4, (3, 7))], tag),
    "vae": Larger(VAE, lambda: [torch.rand(6, 16)], encode, drawn=True),
    "gan": Larger(GAN, lambda: [torch.randn(6, 8)], compete, drawn=True),
    "graph": Larger(
        GraphNetwork,
        lambda: [
            torch.randn(9, 5),
            torch.randint(9, (2, 20)),
            torch.randint(3, (9,)),
            torch.rand(9) > 0.3,
        ],
        label,
    ),
    "experts": Larger(MixtureOfExperts, lambda: [torch.randn(3, 5, 8)], mix),
    "diffusion": Larger(Diffusion, lambda: [torch.randn(3, 1, 8, 8)], denoise, drawn=True),
}
