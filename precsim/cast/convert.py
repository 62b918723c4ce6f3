"""`encode` and `quantize` on NumPy arrays and torch tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, SupportsFloat

import numpy as np

from precsim.cast.decode import fits_float32
from precsim.cast.operand import Operand, as_signed, is_tensor, operand
from precsim.cast.rule import CastRule, randomness, resolve_rule
from precsim.errors import InputError
from precsim.kernels import Randomness, Source
from precsim.number import NAMED_FORMATS, CastPlan, Format, Mode, Overflow, Rounding, plan_cast

__all__ = [
    "as_floats",
    "encode",
    "encode_by_plan",
    "encode_by_rule",
    "given_bits",
    "quantize",
    "quantize_by_rule",
]

_FP32, _FP64 = NAMED_FORMATS["fp32"], NAMED_FORMATS["fp64"]
_BLOCK = 1 << 16
"""Elements converted at a time where a result passes through a buffer."""


def encode(
    x: Any,
    fmt: object,
    rounding: Rounding | Mode | str = "nearest-even",
    overflow: Overflow | str | None = None,
    *,
    profile: str | None = None,
    seed: int | None = None,
    random_bits: Any = None,
    scale: SupportsFloat | None = None,
    out: Any = None,
) -> Any:
    """Cast numbers to the codes of a format, bit for bit as hardware does.

    Each number is rounded once, from its exact value: float64 and integers do not pass through float32 (but under a
    profile whose library does so).

    Parameters
    ----------
    x : array_like or torch.Tensor
        float64, float32, float16, bfloat16, 8-bit and smaller floats (ml_dtypes, torch), or integers; any shape,
        strides and byte order.
    fmt : Format, str or dtype
        Target format of at most 32 bits.
    rounding : Rounding, Mode or str
        Mode, or a complete rule.
    overflow : Overflow or str, optional
        What becomes of values beyond the range. By default infinity, or NaN where the format has none, or the
        greatest finite value where it has neither.
    profile : str, optional
        A named rule of some software or hardware instead, such as ``"torch"`` or ``"ptx-satfinite"``.
    seed : int, optional
        0 … 2^64 − 1, for stochastic rounding. Element i's bits depend on the seed and on i (C order) alone.
    random_bits : int or integer array, optional
        For stochastic rounding: how many random bits each element takes (1 … 32), or the bits themselves in the
        shape of x; an array of uint8, uint16 or uint32 has 8, 16 or 32 bits unless a `Rounding` says otherwise.
    scale : float, optional
        Positive number that x is multiplied with before the cast; exactly if it is a power of two. Otherwise the
        scale and then the product are each rounded to nearest even in float32 (float64 for float64 and integers),
        as GPU kernels do.
    out : array or torch.Tensor, optional
        Receives the codes: of x's shape and the codes' dtype, contiguous, on x's device. Saves the time that the system
        takes to hand out new memory, which for large arrays is longer than the cast.

    Returns
    -------
    array or torch.Tensor of uint8, uint16 or uint32
        Codes in the shape of x (``out`` if it was given); a NumPy scalar for 0-d.

    Raises
    ------
    InputError
        For dtypes that are no real numbers, arguments that contradict each other, or a NaN where the format has none.

    Examples
    --------
    >>> import numpy as np, precsim as ps
    >>> ps.encode(np.float32([1.0, 1e-8, 70000.0]), ps.FP16)
    array([15360,     0, 31744], dtype=uint16)
    >>> ps.encode(464.00003, ps.E4M3, profile="ocp-saturate")
    np.uint8(126)
    """
    source = operand(x)
    rule, given = _stochastic_arguments(source, fmt, rounding, overflow, profile, random_bits, scale)
    random = randomness(rule, seed, given)
    if out is None:
        return encode_by_rule(source, rule, random)
    _encode_into(source, rule, rule.plan, random, _flat_codes(out, source, rule.plan.storage_bits))
    return out


def _flat_codes(out: Any, source: Operand, storage_bits: int) -> Any:
    """Flat view of the caller's memory for codes."""
    dtype = str(getattr(out, "dtype", type(out).__name__)).removeprefix("torch.")
    is_right = dtype == f"uint{storage_bits}" and tuple(getattr(out, "shape", ())) == source.shape
    if not is_right or is_tensor(out) != (source.tensor is not None):
        kind = "tensor" if source.tensor is not None else "array"
        raise InputError(f"out must be a uint{storage_bits} {kind} of x's shape {source.shape}, got {dtype}")
    flags = out.is_contiguous() if is_tensor(out) else out.flags.c_contiguous and out.flags.writeable
    if not flags:
        raise InputError("out must be contiguous and writeable")
    if not is_tensor(out):
        return out.reshape(-1)
    if out.device != source.tensor.device:
        raise InputError(
            f"out lies on {out.device} and x on {source.tensor.device}: they must share a device"
        )
    return out.reshape(-1).numpy() if source.in_cpu_memory else as_signed(out.reshape(-1))


def _stochastic_arguments(
    source: Operand,
    fmt: object,
    rounding: Rounding | Mode | str,
    overflow: Overflow | str | None,
    profile: str | None,
    random_bits: Any,
    scale: SupportsFloat | None,
) -> tuple[CastRule, Any]:
    """The rule, and the given random bits as a flat array where there are any."""
    rule = resolve_rule(fmt, rounding, overflow, profile=profile, random_bits=random_bits, scale=scale)
    return rule, given_bits(random_bits, rule, source)


def given_bits(random_bits: Any, rule: CastRule, source: Operand) -> Any:
    """The given random bits as a flat array, None where only their number was given.

    Raises
    ------
    InputError
        If they have not the source's shape and device, or more bits than the rule takes.
    """
    if rule.rounding.mode is not Mode.STOCHASTIC or not getattr(random_bits, "shape", ()):
        return None
    bits = operand(random_bits, what="random_bits")
    if bits.format is not None or bits.shape != source.shape:
        raise InputError(
            f"random_bits must be an integer array of x's shape {source.shape}, got {bits.dtype} of shape {bits.shape}"
        )
    limit = 1 << (rule.rounding.random_bits or 0)
    if not bits.in_cpu_memory:
        flat = bits.array.reshape(-1)
        out_of_range = bool(((flat < 0) | (flat >= limit)).any())
    else:
        flat = bits.array.reshape(-1)
        out_of_range = bool(flat.size) and not (0 <= int(flat.min()) and int(flat.max()) < limit)
        flat = flat.astype(np.uint32)
    if out_of_range:
        raise InputError(
            f"random_bits must lie in 0 … {limit - 1} for {rule.rounding.random_bits} random bits"
        )
    if bits.in_cpu_memory != source.in_cpu_memory:
        raise InputError("random_bits and x must lie on the same device")
    return flat


def encode_by_rule(source: Operand, rule: CastRule, random: Randomness | None) -> Any:
    """`encode` with its arguments made into a rule."""
    return source.finish(encode_by_plan(source, rule, rule.plan, random))


def encode_by_plan(source: Operand, rule: CastRule, plan: CastPlan, random: Randomness | None) -> Any:
    """Codes by a plan, which may differ from the rule's own in the codes that it gives; not yet finished."""
    result, flat = source.empty(f"uint{plan.storage_bits}")
    _encode_into(source, rule, plan, random, flat)
    return result


def _encode_into(
    source: Operand, rule: CastRule, plan: CastPlan, random: Randomness | None, flat: Any
) -> None:
    for chunk, first in _prepared(source, rule):
        source.engine.encode(
            chunk,
            plan,
            flat[first : first + len(chunk.data)],
            flush_inputs_below=_flush_below(source, rule),
            multiplier=_multiplier(source, rule),
            random=_part(random, first, len(chunk.data)),
        )


def _prepared(source: Operand, rule: CastRule) -> Iterator[tuple[Source, int]]:
    """The chunks to cast: rounded through another format where the rule has it so, NaN refused where it must be."""
    _refuse_lossy_integers(source, rule)
    for chunk, first in source.chunks():
        if not rule.plan.has_nan and chunk.format is not None:
            _refuse_nan(source, chunk, first, rule.format)
        if rule.through is not None and source.is_wide:
            chunk = _round_through(source, chunk, rule.through)
        yield chunk, first


def _round_through(source: Operand, chunk: Source, through: Format) -> Source:
    if through != _FP32:
        raise InputError(f"casts pass through fp32 only, not {through.name}")
    values = np.empty(len(chunk.data), np.uint32) if source.in_cpu_memory else chunk.data.new_empty(0)
    if source.in_cpu_memory:
        source.engine.encode(chunk, plan_cast(_FP32, Rounding()), values)
        return Source(values.view(np.float32), _FP32)
    import torch

    return Source(chunk.data.to(torch.float32), _FP32)


def _refuse_lossy_integers(source: Operand, rule: CastRule) -> None:
    bits_kept = rule.format.precision + (rule.rounding.random_bits or 0)
    wide_integers = source.format is None and source.dtype.itemsize == 8
    if wide_integers and rule.rounding.mode is Mode.STOCHASTIC and bits_kept > 52:
        raise InputError(
            f"64-bit integers cast to {rule.format.name} take at most {52 - rule.format.precision} random bits"
        )


def _refuse_nan(source: Operand, chunk: Source, first: int, fmt: Format) -> None:
    for start in range(0, len(chunk.data), _BLOCK):
        block = as_floats(source, Source(chunk.data[start : start + _BLOCK], chunk.format))
        is_nan = block != block
        if is_nan.any():
            position = first + start + int(is_nan.nonzero()[0].reshape(-1)[0])
            index = tuple(int(i) for i in np.unravel_index(position, source.shape))
            raise InputError(
                f"x{list(index)} is NaN and {fmt.name} has no NaN: clean x or choose a missing_nan rule"
            )


def as_floats(source: Operand, chunk: Source) -> Any:
    """The chunk's values, exactly."""
    assert chunk.format is not None
    if chunk.format in (_FP32, _FP64):
        return chunk.data
    if source.in_cpu_memory:
        values = np.empty(len(chunk.data), np.float32)
    else:
        import torch

        values = torch.empty(len(chunk.data), dtype=torch.float32, device=chunk.data.device)  # type: ignore[assignment]
    source.engine.decode(chunk.data, chunk.format, values)
    return values


def _flush_below(source: Operand, rule: CastRule) -> float:
    if source.format is None or not rule.rounding.flush_inputs:
        return 0.0
    return source.format.smallest_normal


def _multiplier(source: Operand, rule: CastRule) -> float:
    if source.is_wide and rule.through is None:
        return rule.multiplier
    with np.errstate(over="ignore", under="ignore"):
        rounded = float(np.float32(rule.multiplier))
    if not 0.0 < rounded < np.inf:
        raise InputError(f"scale {rule.scale!r} is not a float32 number: use a power of two, or a float64 x")
    return rounded


def _part(random: Randomness | None, first: int, length: int) -> Randomness | None:
    if random is None:
        return None
    given = None if random.given is None else random.given[first : first + length]
    return Randomness(random.seed, random.first + first, given)


def quantize(
    x: Any,
    fmt: object,
    rounding: Rounding | Mode | str = "nearest-even",
    overflow: Overflow | str | None = None,
    *,
    profile: str | None = None,
    seed: int | None = None,
    random_bits: Any = None,
    scale: SupportsFloat | None = None,
    gradient: str = "straight-through",
) -> Any:
    """Round numbers to the values of a format, in their own dtype.

    Parameters
    ----------
    x : array_like or torch.Tensor of floats
        Any shape, strides and byte order.
    fmt, rounding, overflow, profile, seed, random_bits, scale
        As for `encode`. With a scale, the result is divided by it again: the value that the cast number stands for,
        rounded once to x's dtype.
    gradient : {"straight-through", "zero-saturated"}
        For tensors that require a gradient: pass it on as it is, or set it to zero where x overflowed the format.

    Returns
    -------
    array or torch.Tensor
        Shape and dtype of x. A value that x's dtype can't hold (bf16's 65536 in float16) is rounded to it.

    Raises
    ------
    InputError
        As for `encode`, and for integers.

    Examples
    --------
    >>> import numpy as np, precsim as ps
    >>> ps.quantize(np.float32([0.1, 1e-8]), ps.E5M2, scale=2.0**16)
    array([9.375000e-02, 9.313226e-09], dtype=float32)
    """
    if gradient not in ("straight-through", "zero-saturated"):
        raise InputError(f"gradient must be 'straight-through' or 'zero-saturated', got {gradient!r}")
    if is_tensor(x):
        from precsim.cast.autograd import quantize_tensor

        arguments = (fmt, rounding, overflow, profile, random_bits, scale)
        return quantize_tensor(x, arguments, seed, gradient == "zero-saturated")
    source = operand(x)
    rule, given = _stochastic_arguments(source, fmt, rounding, overflow, profile, random_bits, scale)
    return quantize_by_rule(source, rule, randomness(rule, seed, given))


def quantize_by_rule(source: Operand, rule: CastRule, random: Randomness | None) -> Any:
    """`quantize` with its arguments made into a rule."""
    if source.format is None:
        raise InputError(
            f"x has dtype {source.dtype}: quantize keeps the dtype, so convert integers to floats first"
        )
    direct = (
        source.format in (_FP32, _FP64)
        and (fits_float32(rule.format) or source.is_wide)
        and abs(rule.scale_exponent) <= 126
        and (rule.through is None or not source.is_wide)
    )
    name = "float64" if source.is_wide else "float32"
    if direct:
        result, flat = source.empty(name)
        for chunk, first in _prepared(source, rule):
            _quantize_chunk(source, rule, chunk, flat[first : first + len(chunk.data)], random, first)
        return source.finish(result)
    return _quantize_in_blocks(source, rule, random)


def _quantize_chunk(
    source: Operand, rule: CastRule, chunk: Source, out: Any, random: Randomness | None, first: int
) -> None:
    multiplier = _multiplier(source, rule)
    source.engine.quantize(
        chunk,
        rule.plan,
        rule.format,
        out,
        flush_inputs_below=_flush_below(source, rule),
        multiplier=multiplier,
        divisor=multiplier if rule.scale_exponent == 0 else 2.0**rule.scale_exponent,
        random=_part(random, first, len(out)),
    )


def _quantize_in_blocks(source: Operand, rule: CastRule, random: Randomness | None) -> Any:
    """Every case that needs a wider type on the way than the result's: codes, float64 values, one final rounding."""
    assert source.format is not None
    result, flat = source.empty(_storage_name(source))
    store = _storer(source)
    plan = rule.plan
    multiplier = _multiplier(source, rule)
    for chunk, first in _prepared(source, rule):
        for start in range(0, len(chunk.data), _BLOCK):
            part = Source(chunk.data[start : start + _BLOCK], chunk.format)
            length = len(part.data)
            codes, values = _buffers(source, plan.storage_bits, length)
            source.engine.encode(
                part,
                plan,
                codes,
                flush_inputs_below=_flush_below(source, rule),
                multiplier=multiplier,
                random=_part(random, first + start, length),
            )
            source.engine.decode(codes, rule.format, values)
            values = values / multiplier if rule.scale_exponent == 0 else values * 2.0**-rule.scale_exponent
            store(values, flat[first + start : first + start + length])
    return source.finish(result, None if source.format in (_FP32, _FP64) else source.native_dtype)


def _storage_name(source: Operand) -> str:
    if source.format in (_FP32, _FP64):
        return "float64" if source.is_wide else "float32"
    return f"uint{source.array.dtype.itemsize * 8}"


def _storer(source: Operand) -> Callable[[Any, Any], None]:
    """What writes float64 values into a result of the source's own format, with one rounding to nearest even."""
    assert source.format is not None
    if source.format == _FP64:

        def store_wide(values: Any, out: Any) -> None:
            out[:] = values

        return store_wide
    plan = plan_cast(source.format, Rounding())

    def store(values: Any, out: Any) -> None:
        source.engine.encode(Source(values, _FP64), plan, _as_codes(out))

    return store


def _as_codes(out: Any) -> Any:
    """The same memory as unsigned codes (signed on another device, where torch has no unsigned arithmetic)."""
    if isinstance(out, np.ndarray):
        return out.view(np.uint32) if out.dtype == np.float32 else out
    import torch

    return out.view(torch.int32) if out.dtype == torch.float32 else out


def _buffers(source: Operand, storage_bits: int, length: int) -> tuple[Any, Any]:
    if source.in_cpu_memory:
        return np.empty(length, f"uint{storage_bits}"), np.empty(length, np.float64)
    import torch

    codes = torch.empty(
        length,
        dtype={8: torch.uint8, 16: torch.int16, 32: torch.int32}[storage_bits],
        device=source.array.device,
    )
    return codes, torch.empty(length, dtype=torch.float64, device=source.array.device)
