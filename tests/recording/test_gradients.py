"""Recorded gradients against those computed by hand, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import precsim as ps
from precsim.runs import read_sketches
from precsim.runs.folder import read_scalars


def small_model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


def batches(n: int, seed: int = 1) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(5, 8, generator=generator) for _ in range(n)]


def loss_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model(x).square().mean()


def recorded(folder: Path, kind: str, step: int = 0) -> dict[str, ps.Sketch]:
    path = folder / "sketches" / f"step-{step:010}.rank-0.parquet"
    return {row.tensor: row.sketch for row in read_sketches(path) if row.kind == kind}


def tensors(folder: Path, step: int = 0) -> dict[str, torch.Tensor]:
    found = safetensors.torch.load_file(folder / "tensors" / f"step-{step:010}.rank-0.safetensors")
    return {name.removeprefix("grad/"): tensor for name, tensor in found.items()}


def assert_same(folder: Path, wanted: dict[str, torch.Tensor], step: int = 0) -> None:
    """Sketches and whole tensors of a step, against gradients."""
    sketches, kept = recorded(folder, "grad", step), tensors(folder, step)
    assert sketches.keys() == kept.keys() == wanted.keys()
    for name, gradient in wanted.items():
        assert torch.equal(kept[name], gradient), name
        assert sketches[name] == ps.sketch(gradient, errors=False), name


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def test_plain_steps(tmp_path):
    wanted = []
    model = small_model()
    optimizer = sgd(model)
    for x in batches(3):
        optimizer.zero_grad()
        loss_of(model, x).backward()
        wanted.append(gradients(model))
        optimizer.step()
    model = small_model()
    optimizer = sgd(model)
    with ps.record(model, optimizer, tmp_path / "run", tensors="*", tensors_every=1) as recorder:
        for x in batches(3):
            optimizer.zero_grad()
            loss = loss_of(model, x)
            loss.backward()
            recorder.note(loss=loss)
            optimizer.step()
    assert recorder.recorded == [0, 1, 2]
    for step in range(3):
        assert_same(tmp_path / "run", wanted[step], step)
    scalars = read_scalars(tmp_path / "run")
    assert [row["step"] for row in scalars] == [0, 1, 2]
    assert scalars[0]["lr"] == [0.1]
    assert scalars[0]["loss"] == loss_of(small_model(), batches(1)[0]).item()


def test_accumulation_and_clipping(tmp_path):
    model = small_model()
    for x in batches(4):
        (loss_of(model, x) / 4).backward()
    wanted = gradients(model)
    model = small_model()
    optimizer = sgd(model)
    with ps.record(model, optimizer, tmp_path / "run", tensors="*") as recorder:
        for x in batches(4):
            (loss_of(model, x) / 4).backward()
        assert recorder.micro_batches == 4
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        optimizer.step()
    assert_same(tmp_path / "run", wanted)
    (scalars,) = read_scalars(tmp_path / "run")
    assert scalars["micro_batches"] == 4
    assert scalars["grad_norm"] == float(norm)
    assert recorder.recorded == [0]


def test_activation_gradients(tmp_path):
    """Of each module's output, once, though a container returns its last module's; micro-batches added."""
    wanted: dict[str, list[torch.Tensor]] = {}
    model = small_model()
    for name, module in model.named_children():
        module.register_full_backward_hook(
            lambda m, gi, go, name=name: wanted.setdefault(name, []).append(go[0])
        )
    for x in batches(2):
        loss_of(model, x.requires_grad_()).backward()
    model = small_model()
    optimizer = sgd(model)
    with ps.record(model, optimizer, tmp_path / "run"):
        for x in batches(2):
            loss_of(model, x).backward()
        optimizer.step()
    found = recorded(tmp_path / "run", "act_grad")
    assert found.keys() == wanted.keys()
    for name, parts in wanted.items():
        assert found[name] == ps.sketch(torch.cat(parts), errors=False), name


def with_scaler(
    make_step: Callable[..., None], folder: Path | None, scale: float = 2.0**10
) -> list[dict[str, torch.Tensor]]:
    """Three steps of fp16 autocast on the CPU, the second one overflowing; returns scaled gradients."""
    model = small_model()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=2)
    seen = []
    recorder = (
        None
        if folder is None
        else ps.record(model, optimizer, folder, scaler=scaler, tensors="*", tensors_every=1)
    )
    for i, x in enumerate(batches(3)):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = loss_of(model, x) * (1e30 if i == 1 else 1)
        scaler.scale(loss).backward()
        seen.append(gradients(model))
        make_step(scaler, optimizer, model)
        scaler.update()
    if recorder is not None:
        recorder.close()
    return seen


def plain_step(scaler, optimizer, model) -> None:
    scaler.step(optimizer)


def unscale_and_clip(scaler, optimizer, model) -> None:
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    scaler.step(optimizer)


@pytest.mark.parametrize("make_step", [plain_step, unscale_and_clip])
def test_grad_scaler_with_autocast(tmp_path, make_step):
    wanted = with_scaler(make_step, None)
    with_scaler(make_step, tmp_path / "run")
    scalars = read_scalars(tmp_path / "run")
    assert [row["skipped"] for row in scalars] == [False, True, False]
    assert [row["found_inf"] for row in scalars] == [False, True, False]
    assert [row["loss_scale"] for row in scalars] == [2.0**10, 2.0**10, 2.0**9]
    for step, scaled in enumerate(wanted):
        kept, sketches = tensors(tmp_path / "run", step), recorded(tmp_path / "run", "grad", step)
        exponent = int(np.log2(scalars[step]["loss_scale"]))
        for name, gradient in scaled.items():
            assert torch.equal(kept[name].nan_to_num(7), gradient.nan_to_num(7))
            true = ps.sketch(gradient, errors=False).scaled(-exponent)
            assert sketches[name] == true, f"{name} at step {step}"
    entries = list(ps.open_run(tmp_path / "run"))
    assert {entry.metadata["loss_scale"] for entry in entries} == {"1.0"}


def test_a_scale_that_is_no_power_of_two_is_noted(tmp_path):
    with_scaler(plain_step, tmp_path / "run", scale=1000.0)
    entry = next(iter(ps.open_run(tmp_path / "run")))
    assert entry.metadata["loss_scale"] == "1000.0"


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_counts_nothing_twice(tmp_path, reentrant):
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.rest = nn.Linear(8, 8), small_model()

        def forward(self, x: torch.Tensor, through: bool = True) -> torch.Tensor:
            x = self.first(x)
            return checkpoint(self.rest, x, use_reentrant=reentrant) if through else self.rest(x)

    torch.manual_seed(3)
    model = Checkpointed()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    x = batches(1)[0]

    def run(folder: Path, through: bool) -> None:
        model.load_state_dict(start)
        optimizer = sgd(model)
        with ps.record(model, optimizer, folder, tensors="*"):
            model(x, through).square().mean().backward()
            optimizer.step()
        optimizer.zero_grad()

    run(tmp_path / "plain", False)
    run(tmp_path / "checkpointed", True)
    assert_same(tmp_path / "checkpointed", tensors(tmp_path / "plain"))
    plain, other = (recorded(tmp_path / name, "act_grad") for name in ("plain", "checkpointed"))
    shared = plain.keys() & other.keys()
    assert {"first", "rest.0", "rest.2", "rest.3"} <= shared
    for name in shared:
        assert other[name] == plain[name], name


def test_compiled_models(tmp_path):
    model = small_model()
    x = batches(1)[0]
    loss_of(model, x).backward()
    wanted = gradients(model)
    model = small_model()
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = sgd(model)
    with ps.record(compiled, optimizer, tmp_path / "run", tensors="*"):
        loss_of(compiled, x).backward()
        optimizer.step()
    assert_same(tmp_path / "run", wanted)


class Odd(nn.Module):
    """Tied weights, a parameter that gets no gradient, a sparse one, a complex one, bfloat16 ones."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.words = nn.Embedding(20, 6, sparse=True)
        self.left = nn.Linear(6, 6, bias=False)
        self.tied = nn.Linear(6, 6, bias=False)
        self.tied.weight = self.left.weight
        self.unused = nn.Parameter(torch.ones(3))
        self.turn = nn.Parameter(torch.randn(6, dtype=torch.complex64))
        self.narrow = nn.Parameter(torch.randn(6).bfloat16())

    def forward(self, at: torch.Tensor) -> torch.Tensor:
        x = self.tied(self.left(self.words(at)))
        return (x * self.turn).abs().square().mean() + (x * self.narrow.float()).mean()


def test_odd_parameters(tmp_path):
    at = torch.tensor([3, 3, 7])
    model = Odd()
    model(at).backward()
    wanted = gradients(model)
    model = Odd()
    optimizer = sgd(model)
    with ps.record(model, optimizer, tmp_path / "run", tensors="*"):
        model(at).backward()
        optimizer.step()
    found, kept = recorded(tmp_path / "run", "grad"), tensors(tmp_path / "run")
    assert found.keys() == kept.keys() == {"words.weight", "left.weight", "turn", "narrow"}
    dense = wanted["words.weight"].to_dense()
    assert torch.equal(kept["words.weight"], dense)
    assert found["words.weight"] == ps.sketch(dense, errors=False)
    assert found["turn"] == ps.sketch(torch.view_as_real(wanted["turn"]), errors=False)
    assert found["narrow"] == ps.sketch(wanted["narrow"], errors=False)
    assert found["left.weight"] == ps.sketch(wanted["left.weight"], errors=False)
    (scalars,) = read_scalars(tmp_path / "run")
    assert scalars["unused"] == ["unused"]


def test_a_sample_holds_the_greatest_element(tmp_path):
    model = nn.Linear(200, 50)
    optimizer = sgd(model)
    with ps.record(model, optimizer, tmp_path / "run", tensors="weight", sample=100):
        model(torch.randn(4, 200)).square().mean().backward()
        gradient = model.weight.grad.clone()
        optimizer.step()
    (entry,) = ps.open_run(tmp_path / "run" / "tensors")
    assert (entry.numel, entry.numel_full) == (100, 10_000)
    kept = tensors(tmp_path / "run")["weight"]
    assert kept.abs().max() == gradient.abs().max()
    assert bool(torch.isin(kept, gradient).all())


def test_every_and_kinds_and_names(tmp_path):
    model = small_model()
    optimizer = sgd(model)
    with ps.record(
        model, optimizer, tmp_path / "run", every=3, kinds=("grad", "weight", "act"), names=["0*"]
    ) as recorder:
        for x in batches(7):
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()
    assert recorder.recorded == [0, 3, 6]
    names = {entry.name for entry in ps.open_run(tmp_path / "run")}
    assert names == {"grad/0.weight", "grad/0.bias", "weight/0.weight", "weight/0.bias", "act/0"}


def test_closing_leaves_everything_as_it_was(tmp_path):
    model = small_model()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu")
    clip = nn.utils.clip_grad_norm_

    def facts() -> tuple:
        modules = [(len(m._forward_hooks), len(m._backward_hooks)) for m in model.modules()]
        parameters = [p._post_accumulate_grad_hooks for p in model.parameters()]
        hooks = len(optimizer._optimizer_step_pre_hooks), len(optimizer._optimizer_step_post_hooks)
        return (
            modules,
            [bool(p) for p in parameters],
            hooks,
            "step" in vars(scaler),
            nn.utils.clip_grad_norm_ is clip,
        )

    before = facts()
    recorder = ps.record(model, optimizer, tmp_path / "run", scaler=scaler)
    assert facts() != before
    recorder.close()
    recorder.close()
    assert facts() == before


def test_training_is_the_same_with_and_without(tmp_path):
    def train(folder: Path | None) -> list[torch.Tensor]:
        model = small_model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        recorder = (
            None
            if folder is None
            else ps.record(model, optimizer, folder, kinds=("grad", "act_grad", "act", "weight"))
        )
        for x in batches(5):
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()
        if recorder is not None:
            recorder.close()
        return list(model.parameters())

    assert all(map(torch.equal, train(None), train(tmp_path / "run")))


def test_going_on_in_a_folder(tmp_path):
    for _ in range(2):
        model = small_model()
        optimizer = sgd(model)
        with ps.record(model, optimizer, tmp_path / "run") as recorder:
            for x in batches(2):
                loss_of(model, x).backward()
                optimizer.step()
    assert recorder.recorded == [2, 3]
    assert [row["step"] for row in read_scalars(tmp_path / "run")] == [0, 1, 2, 3]
    assert json.loads((tmp_path / "run" / "run.json").read_text())["schema"] == "precsim.run/1"


def test_what_cannot_be_recorded(tmp_path):
    model, other = small_model(), small_model()
    with pytest.raises(ps.InputError, match="no parameter of this model"):
        ps.record(model, sgd(other), tmp_path / "a")
    with pytest.raises(ps.InputError, match="unknown kind 'gradient'"):
        ps.record(model, sgd(model), tmp_path / "b", kinds=("gradient",))
    with pytest.raises(ps.InputError, match="at least 1"):
        ps.record(model, sgd(model), tmp_path / "b", every=0)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(ps.InputError, match="no run folder"):
        ps.record(model, sgd(model), tmp_path / "full")
    (tmp_path / "c" / "sketches").mkdir(parents=True)
    (tmp_path / "c" / "run.json").write_text('{"schema": "precsim.run/99"}')
    with pytest.raises(ps.InputError, match="run/99"):
        ps.record(model, sgd(model), tmp_path / "c")
    with pytest.raises(ps.InputError, match="run/99"):
        ps.open_run(tmp_path / "c")
