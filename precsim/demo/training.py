"""A character-level GPT on `pydoc_data.topics`, Python's own help texts: real gradients without a download."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["Training", "small_gpt", "train"]

_CONTEXT, _BATCH, _WIDTH, _LAYERS, _HEADS = 64, 16, 128, 4, 4
_PEAK_LR, _WARM_UP = 1e-3, 50


@dataclass(frozen=True)
class Training:
    """A model, its optimizer, and data in a fixed order.

    Attributes
    ----------
    model : torch.nn.Module
    optimizer : torch.optim.Optimizer
    loss : callable
        Takes a batch, returns the mean loss as a scalar tensor.
    batches : iterator
        Endless.
    validation : list
        Batches that are not trained on.
    lr : callable
        Step number to learning rate.
    """

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    loss: Callable[[Any], torch.Tensor]
    batches: Iterator[Any]
    validation: list[Any]
    lr: Callable[[int], float]


def small_gpt(seed: int = 0, order: int = 0) -> Training:
    """A GPT of 0.8 million parameters: 4 layers, 128 wide, 64 characters of context, batches of 16.

    Parameters
    ----------
    seed : int
        Of the weights.
    order : int
        Of the batches.

    Returns
    -------
    Training
        With AdamW and a warm-up of 50 steps.
    """
    import torch
    from torch.nn import functional

    text = _text()
    held_out = len(text) // 20
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _model(int(text.max()) + 1)

    def loss(batch: torch.Tensor) -> torch.Tensor:
        logits = model(batch[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())

    def cut(generator: torch.Generator, first: int, last: int) -> torch.Tensor:
        places = torch.randint(first, last - _CONTEXT - 1, (_BATCH,), generator=generator)
        return torch.stack([text[place : place + _CONTEXT + 1] for place in places.tolist()])

    def batches() -> Iterator[torch.Tensor]:
        generator = torch.Generator().manual_seed(order)
        while True:
            yield cut(generator, 0, len(text) - held_out)

    unseen = torch.Generator().manual_seed(2**31)
    validation = [cut(unseen, len(text) - held_out, len(text)) for _ in range(8)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=_PEAK_LR)
    return Training(model, optimizer, loss, batches(), validation, _learning_rate)


def _learning_rate(step: int) -> float:
    return _PEAK_LR * min(1.0, (step + 1) / _WARM_UP)


def train(
    training: Training, steps: int, *, after_backward: Callable[[int, torch.Tensor], object] | None = None
) -> list[float]:
    """Train, and return the loss of each step.

    Parameters
    ----------
    training : Training
    steps : int
    after_backward : callable, optional
        Gets the step's number and its loss before the optimizer's step.
    """
    losses = []
    for step, batch in zip(range(steps), training.batches, strict=False):
        for group in training.optimizer.param_groups:
            group["lr"] = training.lr(step)
        training.optimizer.zero_grad()
        loss = training.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        if after_backward is not None:
            after_backward(step, loss)
        training.optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@functools.cache
def _text() -> torch.Tensor:
    """All help texts as numbers of characters; rare ones share a number."""
    from pydoc_data import topics

    import torch

    text = "\n\n".join(topics.topics[name] for name in sorted(topics.topics))
    number = {c: i for i, c in enumerate(sorted(c for c in set(text) if text.count(c) >= 20))}
    return torch.tensor([number.get(c, len(number)) for c in text])


def _model(characters: int) -> Any:
    from torch import nn
    from torch.nn import functional

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query_key_value = nn.Linear(_WIDTH, 3 * _WIDTH)
            self.output = nn.Linear(_WIDTH, _WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            batch, length, _ = x.shape
            parts = self.query_key_value(x).view(batch, length, 3, _HEADS, -1).permute(2, 0, 3, 1, 4)
            seen = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
            found: torch.Tensor = self.output(seen.transpose(1, 2).reshape(batch, length, _WIDTH))
            return found

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
            self.attention = Attention()
            self.wide, self.narrow = nn.Linear(_WIDTH, 4 * _WIDTH), nn.Linear(4 * _WIDTH, _WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.attention(self.norm1(x))
            found: torch.Tensor = x + self.narrow(functional.gelu(self.wide(self.norm2(x))))
            return found

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.characters = nn.Embedding(characters, _WIDTH)
            self.positions = nn.Embedding(_CONTEXT, _WIDTH)
            self.blocks = nn.ModuleList(Block() for _ in range(_LAYERS))
            self.norm = nn.LayerNorm(_WIDTH)
            self.head = nn.Linear(_WIDTH, characters, bias=False)
            for name, parameter in self.named_parameters():
                if name.endswith("bias"):
                    nn.init.zeros_(parameter)
                elif "norm" not in name:
                    deep = name.endswith(("output.weight", "narrow.weight"))
                    nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * _LAYERS) if deep else 0.02)

        def forward(self, numbers: torch.Tensor) -> torch.Tensor:
            x = self.characters(numbers) + self.positions.weight[: numbers.shape[1]]
            for block in self.blocks:
                x = block(x)
            found: torch.Tensor = self.head(self.norm(x))
            return found

    return Gpt()
