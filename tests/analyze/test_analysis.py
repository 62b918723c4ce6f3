"""Analyses against casts of every element by torch, and what is said about them."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file

import precsim as ps
from precsim.analyze import analyze
from precsim.sketches import Outcomes

EXAMPLES = Path(__file__).parents[2] / "examples" / "gradients"
EXAMPLE_FILES = sorted(EXAMPLES.rglob("*.safetensors"))
DTYPES = {"fp16": torch.float16, "e5m2": torch.float8_e5m2}


def cast_by_torch(x: torch.Tensor, dtype: torch.dtype, scale: float) -> Outcomes:
    """Counts of what torch's own cast does. In float32 the products are exact: x has its full range to spare."""
    product = x * scale
    assert torch.equal(product.double(), x.double() * scale)
    result = product.to(dtype).float()
    magnitude = result.abs()
    nonzero, infinite = x != 0, magnitude.isinf()
    normal = (magnitude >= torch.finfo(dtype).smallest_normal) & ~infinite
    return Outcomes(
        zero=int((~nonzero).sum()),
        flushed=int((nonzero & (result == 0)).sum()),
        subnormal=int(((result != 0) & ~normal & ~infinite).sum()),
        normal=int(normal.sum()),
        overflowed=int(infinite.sum()),
        nonfinite=0,
    )


def save(path: Path, tensors: dict[str, np.ndarray], **metadata: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: np.ascontiguousarray(x) for name, x in tensors.items()}, path, metadata or None)
    return path


def test_there_are_examples():
    assert {path.parent.name for path in EXAMPLE_FILES} == {"cnn", "gpt", "minilm"}


@pytest.mark.parametrize("path", EXAMPLE_FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_recorded_gradients_are_counted_as_torch_casts_them(path):
    scales = (1.0, 2.0**8, 2.0**16, 2.0**32)
    analysis = analyze(ps.open_run(path), [ps.FP16, ps.E5M2], scales=scales, group_by="tensor")
    tensors = load_file(path)
    assert [group.name for group in analysis.groups] == list(tensors)
    for group in analysis.groups:
        for result in group.formats:
            for scale in scales:
                want = cast_by_torch(tensors[group.name], DTYPES[result.format.name], scale)
                assert result.outcomes[scale] == want, (group.name, result.format, scale)
    everything = torch.cat([x.reshape(-1) for x in tensors.values()])
    for result, dtype in zip(analysis.total.formats, DTYPES.values(), strict=True):
        counts = result.outcomes[scales[-1]]
        assert counts == cast_by_torch(everything, dtype, scales[-1])
        assert counts.normal > 0
        assert counts.overflowed > 0


def test_a_scale_that_is_no_power_of_two_is_counted_directly(tmp_path):
    rng = np.random.default_rng(5)
    x = np.float32(rng.lognormal(-6, 5, 3000))
    narrow = x.astype(ml_dtypes.bfloat16)
    path = save(tmp_path / "x.safetensors", {"x": x, "b": narrow, "d": x.astype(np.float64), "h": x[:0]})
    for scale in (3.0, 1000.0, 0.1):
        result = analyze(ps.open_run(path), [ps.E4M3], scales=(1.0, scale)).total.formats[0]
        want = [ps.outcomes(part, ps.E4M3, scale) for part in (x, narrow, x.astype(np.float64))]
        assert result.outcomes[scale] == sum(want, Outcomes(0, 0, 0, 0, 0, 0))
        assert result.outcomes[scale] != result.outcomes[1.0]


def test_a_direct_count_takes_nan_to_formats_without_one(tmp_path):
    path = save(tmp_path / "x.safetensors", {"x": np.float32([np.nan, np.inf, -1.0, 0.0])})
    result = analyze(ps.open_run(path), [ps.E2M1], scales=(3.0,)).total.formats[0]
    assert result.outcomes[3.0] == Outcomes(1, 0, 0, 1, 0, 2)


def test_groups(tmp_path):
    ones = np.ones(4, np.float32)
    save(
        tmp_path / "step1.safetensors",
        {"grad/a.weight": ones, "grad/a.bias": ones[:1], "act_grad/a": 8 * ones},
    )
    save(tmp_path / "step2.safetensors", {"grad/a.weight": 2 * ones})
    run = ps.open_run(tmp_path)
    sizes = {}
    for group_by in ("kind", "file", "module", "tensor"):
        analysis = analyze(run, [ps.FP16], group_by=group_by)
        sizes[group_by] = {group.name: group.sketch.n for group in analysis.groups}
        assert analysis.total.sketch == sum((group.sketch for group in analysis.groups), ps.sketch([]))
    assert sizes == {
        "kind": {"grad": 9, "act_grad": 4},
        "file": {str(tmp_path / "step1.safetensors"): 9, str(tmp_path / "step2.safetensors"): 4},
        "module": {"grad/a": 9, "act_grad/a": 4},
        "tensor": {"grad/a.weight": 8, "grad/a.bias": 1, "act_grad/a": 4},
    }


def test_the_tensors_that_leave_no_window_are_named(tmp_path):
    small, large = np.full(1000, 2.0**-30, np.float32), np.full(10, 2.0**10, np.float32)
    save(tmp_path / "s1.safetensors", {"grad/small": small, "grad/medium": np.ones(10, np.float32)})
    save(tmp_path / "s2.safetensors", {"grad/large": large})
    result = analyze(ps.open_run(tmp_path), [ps.FP16]).total.formats[0]
    # FP16 keeps 2^-24 and overflows from 65520 on.
    assert (result.window.low, result.window.high) == (6, 5)
    assert not result.window
    assert (result.largest.name, result.largest.path.name) == ("grad/large", "s2.safetensors")
    assert (result.most_flushed.name, result.most_flushed.path.name) == ("grad/small", "s1.safetensors")


def test_the_share_that_may_be_lost_is_exact(tmp_path):
    x = np.float32([2.0**-60] + 999 * [1.0])
    path = save(tmp_path / "x.safetensors", {"x": x})
    for share, low in ((Fraction(1, 1000), -24), (Fraction(999, 1000_000), 36)):
        assert analyze(ps.open_run(path), [ps.FP16], max_flushed=share).total.formats[0].window.low == low


def test_what_is_not_float_is_skipped_and_named(tmp_path):
    path = save(
        tmp_path / "x.safetensors",
        {"w": np.ones(3, np.float32), "ids": np.arange(3), "mask": np.ones(2, bool)},
    )
    evidence = analyze(ps.open_run(path), [ps.FP16]).evidence
    assert (evidence.tensors, evidence.elements, set(evidence.skipped)) == (1, 3, {"ids", "mask"})
    only = save(tmp_path / "only" / "ids.safetensors", {"ids": np.arange(3)})
    with pytest.raises(ps.InputError, match="ids.safetensors: holds no tensor of floats"):
        analyze(ps.open_run(only), [ps.FP16])


def test_the_evidence_says_what_it_can_not_show(tmp_path):
    x = np.ones(3, np.float32)
    save(tmp_path / "a.safetensors", {"x": x}, loss_scale="1024.0", numel_full='{"x": 9}')
    save(tmp_path / "b.safetensors", {"x": x.astype(np.float16), "y": x.astype(ml_dtypes.bfloat16)})
    evidence = analyze(ps.open_run(tmp_path), [ps.FP16]).evidence
    assert (evidence.files, evidence.tensors, evidence.elements, evidence.samples) == (2, 3, 9, 1)
    assert evidence.narrow == ("bfloat16", "float16")
    assert (evidence.loss_scales, evidence.files_without_loss_scale) == ((1024.0,), 1)


def test_formats_wider_than_a_sketch_resolves_are_refused(tmp_path):
    path = save(tmp_path / "x.safetensors", {"x": np.ones(3, np.float32)})
    with pytest.raises(ps.InputError, match="format fp64 has 64 bits: analyze takes those of at most 32"):
        analyze(ps.open_run(path), [ps.FP64])
