"""`quantize` on tensors: straight-through gradients, a well-formed operator, safe from torch.compile."""

from __future__ import annotations

import os
import shutil

import pytest
import torch

import precsim as ps
from precsim.cast.autograd import _to_text
from precsim.cast.rule import resolve_rule

X = torch.tensor([0.1, -3.0, 449.0, 463.0, 465.0, 1e4, -1e4, 2.0**-12, 0.0, float("inf")])


@pytest.mark.usefixtures("engine")
def test_the_gradient_goes_straight_through():
    x = X.clone().requires_grad_()
    y = ps.quantize(x, ps.E4M3, overflow="saturate")
    y.backward(torch.arange(10.0))
    assert torch.equal(x.grad, torch.arange(10.0))


@pytest.mark.usefixtures("engine")
def test_or_is_zero_exactly_where_the_cast_overflowed():
    x = X.clone().requires_grad_()
    y = ps.quantize(x, ps.E4M3, overflow="saturate", gradient="zero-saturated")
    y.backward(torch.ones(10))
    # 463 rounds to 448, the greatest value; 465 would round to 480, which the format lacks.
    assert x.grad.tolist() == [1, 1, 1, 1, 0, 0, 0, 1, 1, 0]


@pytest.mark.usefixtures("engine")
def test_saturation_is_judged_after_the_scale():
    x = torch.tensor([1.0, 29.0, 30.0], requires_grad=True)
    ps.quantize(x, ps.E4M3, overflow="saturate", scale=16.0, gradient="zero-saturated").sum().backward()
    assert x.grad.tolist() == [1, 1, 0]


@pytest.mark.usefixtures("engine")
def test_fp32_marks_float64_that_overflows_it():
    x = torch.tensor([1e38, 3.5e38, -1e300], dtype=torch.float64, requires_grad=True)
    ps.quantize(x, ps.FP32, gradient="zero-saturated").sum().backward()
    assert x.grad.tolist() == [1, 0, 0]


def test_unknown_gradient_rule():
    with pytest.raises(ps.InputError, match="gradient must be 'straight-through' or 'zero-saturated'"):
        ps.quantize(X, ps.E4M3, gradient="none")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("zero_saturated", [False, True])
def test_the_operator_is_well_formed(dtype, zero_saturated):
    rule = _to_text(resolve_rule(ps.E5M2, "stochastic"))
    for x in (X.to(dtype), X.to(dtype).reshape(2, 5).t(), torch.zeros(0, dtype=dtype)):
        torch.library.opcheck(
            torch.ops.precsim.quantize.default, (x.clone().requires_grad_(), None, 7, rule, zero_saturated)
        )
        torch.library.opcheck(torch.ops.precsim.overflows.default, (x, None, 7, rule))


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"overflow": "saturate"},
        {"rounding": "toward-zero"},
        {"rounding": "stochastic", "seed": (1 << 64) - 3},
        {"scale": 3.0},
        {"profile": "ocp-saturate"},
    ],
    ids=str,
)
def test_compiled_code_rounds_as_eager_code_does(arguments):
    def f(x):
        return ps.quantize(x * 2.0, ps.E4M3, **arguments) + 1.0

    torch.compiler.reset()
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    for x in (X, X[:3].clone().requires_grad_()):
        want, got = f(x), compiled(x)
        assert torch.equal(got.nan_to_num(7.0), want.nan_to_num(7.0))
    got.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


@pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script_method.*:DeprecationWarning"
)  # torch's own import, once
@pytest.mark.skipif(
    os.environ.get("CXX") == "/bin/false" or not shutil.which("c++"), reason="inductor needs a C++ compiler"
)
def test_a_compiler_that_deletes_casts_keeps_this_one():
    x = torch.tensor([1.0 + 2.0**-12])
    torch.compiler.reset()
    assert torch.compile(lambda v: ps.quantize(v, ps.FP16), backend="inductor")(x).item() == 1.0
