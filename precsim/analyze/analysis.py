"""`analyze`: what formats and scales do to recorded tensors, group by group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from precsim.analyze.blockwise import blockwise_outcomes
from precsim.analyze.dead import dead_below
from precsim.analyze.direct import direct_outcomes
from precsim.analyze.roles import role_of
from precsim.analyze.scale import is_power_of_two
from precsim.errors import InputError
from precsim.kernels import engine
from precsim.number import Format
from precsim.runs import TensorEntry, loss_scale
from precsim.sketches import Outcomes, Sketch, Window
from precsim.wording import counted, html_table, percent, power

__all__ = ["GROUPINGS", "Analysis", "Evidence", "FormatResult", "Group", "TensorResult", "analyze"]

GROUPINGS: Mapping[str, Callable[[TensorEntry], str]] = {
    "kind": lambda entry: entry.name.split("/", 1)[0] if "/" in entry.name else "tensors",
    "file": lambda entry: str(entry.path),
    "module": lambda entry: entry.name.rsplit(".", 1)[0],
    "tensor": lambda entry: entry.name,
    "role": lambda entry: role_of(entry.name),
}
"""How tensors are put together. The kind is what stands before a name's first slash, the role what its name tells."""

_MOST_BITS = 32
"""Widest format whose thresholds a sketch resolves."""


@dataclass(frozen=True)
class TensorResult:
    """One tensor of one file.

    Attributes
    ----------
    name, dtype : str
    path : Path
    group : str
    sketch : Sketch
    numel_full : int or None
        True number of elements where the file holds a sample.
    step : int or None
        Training step, where it is known.
    loss_scale : float or None
        The loss scale that the numbers carry, where the file says.
    blockwise : mapping of Format to Outcomes
        Where it was asked for and the tensor is whole: outcomes with a scale of its own for each block of 128 elements.
    direct : mapping of (Format, float) to Outcomes
        What a sketch does not tell: outcomes at scales that are no powers of two.
    """

    name: str
    dtype: str
    path: Path
    group: str
    sketch: Sketch
    numel_full: int | None
    step: int | None = None
    loss_scale: float | None = None
    blockwise: Mapping[Format, Outcomes] = field(default_factory=dict)
    direct: Mapping[tuple[Format, float], Outcomes] = field(default_factory=dict)

    def outcomes(self, fmt: Format, scale: float) -> Outcomes:
        """What a cast of x·scale to a format does to it, for a power of two or a scale that was asked for."""
        return self.sketch.outcomes(fmt, scale) if is_power_of_two(scale) else self.direct[fmt, scale]


@dataclass(frozen=True)
class FormatResult:
    """What a cast to one format does to a group.

    Attributes
    ----------
    format : Format
    outcomes : mapping of float to Outcomes
        By scale.
    window : Window
        Of the power-of-two scales.
    largest : TensorResult or None
        The tensor with the greatest magnitude, which bounds the window from above.
    most_flushed : TensorResult or None
        The tensor that loses most numbers at the window's high end, which bounds it from below; None if nothing is lost
        there.
    """

    format: Format
    outcomes: Mapping[float, Outcomes]
    window: Window
    largest: TensorResult | None
    most_flushed: TensorResult | None


@dataclass(frozen=True)
class Group:
    """Tensors that are looked at together.

    Attributes
    ----------
    name : str
    tensors : tuple of TensorResult
    sketch : Sketch
        Of all of them.
    formats : tuple of FormatResult
    """

    name: str
    tensors: tuple[TensorResult, ...]
    sketch: Sketch
    formats: tuple[FormatResult, ...]


@dataclass(frozen=True)
class Evidence:
    """What the numbers rest on.

    Attributes
    ----------
    files, tensors, elements : int
    samples : int
        Tensors that are samples of larger ones.
    narrow : tuple of str
        Types of fewer than 32 bits that tensors were captured in: what such a type flushed can't be seen any more.
    loss_scales : tuple of float
        Loss scales that the files state.
    files_without_loss_scale : int
    skipped : tuple of str
        Tensors that are no floats.
    """

    files: int
    tensors: int
    elements: int
    samples: int
    narrow: tuple[str, ...]
    loss_scales: tuple[float, ...]
    files_without_loss_scale: int
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class Analysis:
    """The result of `analyze`.

    Attributes
    ----------
    groups : tuple of Group
    total : Group
        All tensors together.
    steps : tuple of (int, Group)
        All tensors of each training step, in ascending order: how windows move. Empty where steps are not known.
    scales : tuple of float
        Scales at which outcomes are given.
    max_flushed : Fraction
        Share of the nonzero numbers that a window may lose.
    evidence : Evidence
    """

    groups: tuple[Group, ...]
    total: Group
    steps: tuple[tuple[int, Group], ...]
    scales: tuple[float, ...]
    max_flushed: Fraction
    evidence: Evidence

    def _repr_html_(self) -> str:
        groups = [*self.groups, self.total] if len(self.groups) > 1 else [self.total]
        header = ["group", "format", "scale", "flushed", "subnormal", "overflow", "usable scales"]
        rows = []
        for group in groups:
            for result in group.formats:
                for scale, found in result.outcomes.items():
                    parts = (found.flushed, found.subnormal, found.overflowed)
                    shares = [percent(part, found.nonzero) for part in parts]
                    rows.append([group.name, result.format.name, power(scale), *shares, str(result.window)])
        tensors, elements = self.evidence.tensors, self.evidence.elements
        return html_table(f"{counted(tensors, 'tensor')}, {counted(elements, 'element')}", header, rows)


@dataclass
class _Seen:
    """What was met on the way."""

    files: dict[Path, float | None] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


def analyze(
    entries: Iterable[TensorEntry],
    formats: Sequence[Format],
    *,
    scales: Sequence[float] = (1.0,),
    max_flushed: Fraction = Fraction(1, 1000),
    group_by: str = "kind",
    errors: bool = False,
    blockwise: Sequence[Format] = (),
    progress: Callable[[TensorEntry], None] = lambda entry: None,
) -> Analysis:
    """Count what casts to formats do to tensors.

    Parameters
    ----------
    entries : iterable of TensorEntry
        Read once, piece by piece.
    formats : sequence of Format
        Named formats of at most 32 bits.
    scales : sequence of float
        Positive. Powers of two are read off the sketch; each other one costs a cast of its own, with x·scale rounded
        once to float32 (float64 for a tensor of float64) before the cast, as a multiplication in front of it would do.
    max_flushed : Fraction
        Share of the nonzero numbers that a window may lose.
    group_by : {"kind", "role", "file", "module", "tensor"}
    errors : bool
        Whether sketches can tell errors too, not counts alone: at a third of the speed and twice the memory. Stored
        sketches are taken as they are.
    blockwise : sequence of Format
        Formats for which whole tensors are also looked at with a scale for each block of 128 elements.
    progress : callable
        Called with each tensor before it is read.

    Returns
    -------
    Analysis

    Raises
    ------
    InputError
        If a tensor can't be read, or there is none of floats; for a format of more than 32 bits.
    """
    for fmt in formats:
        if fmt.bits > _MOST_BITS:
            raise InputError(
                f"format {fmt.name} has {fmt.bits} bits: analyze takes those of at most {_MOST_BITS}"
            )
    direct = [(fmt, scale) for scale in scales if not is_power_of_two(scale) for fmt in formats]
    group_of, seen = GROUPINGS[group_by], _Seen()
    results: dict[str, list[TensorResult]] = {}
    for entry in entries:
        progress(entry)
        seen.files.setdefault(entry.path, loss_scale(entry.metadata))
        if not entry.is_real:
            seen.skipped.append(entry.name)
            continue
        result = _read(entry, group_of(entry), direct, errors, blockwise)
        results.setdefault(result.group, []).append(result)
    everything = [result for group in results.values() for result in group]
    if not everything:
        files = ", ".join(map(str, list(seen.files)[:3]))
        raise InputError(
            f"{files or 'the input'}: holds no tensor of floats ({len(seen.skipped)} others were skipped)"
        )

    def summed(name: str, tensors: list[TensorResult]) -> Group:
        return _group(name, tensors, formats, scales, max_flushed)

    return Analysis(
        tuple(summed(name, tensors) for name, tensors in results.items()),
        summed("all", everything),
        tuple((step, summed(f"step {step}", tensors)) for step, tensors in _by_step(everything)),
        tuple(scales),
        max_flushed,
        _evidence(everything, seen),
    )


def _by_step(tensors: list[TensorResult]) -> list[tuple[int, list[TensorResult]]]:
    steps: dict[int, list[TensorResult]] = {}
    for tensor in tensors:
        if tensor.step is not None:
            steps.setdefault(tensor.step, []).append(tensor)
    return sorted(steps.items())


def _read(
    entry: TensorEntry,
    group: str,
    direct: Sequence[tuple[Format, float]],
    errors: bool,
    blockwise: Sequence[Format],
) -> TensorResult:
    counting = engine()
    total = entry.sketch(counting, errors=errors)
    cast = dict.fromkeys(direct, Outcomes(0, 0, 0, 0, 0, 0))
    if direct and entry.stored is not None:
        raise InputError(
            f"{entry.path}: of tensor {entry.name!r} only the sketch was kept: it answers for powers of two as scales"
        )
    for source in entry.chunks() if direct else ():
        for fmt, scale in direct:
            cast[fmt, scale] += direct_outcomes(source, fmt, scale, counting)
    return TensorResult(
        entry.name,
        entry.dtype,
        entry.path,
        group,
        total,
        entry.numel_full,
        entry.step,
        loss_scale(entry.metadata),
        _by_block(entry, total, blockwise),
        cast,
    )


def _by_block(entry: TensorEntry, sketch: Sketch, formats: Sequence[Format]) -> dict[Format, Outcomes]:
    """Outcomes with a scale for each block, without dead numbers; none for samples: no neighbours."""
    sampled = entry.numel_full is not None and entry.numel_full > entry.numel
    if sampled or entry.stored is not None:
        return {}
    cut, casting = dead_below(sketch), engine()
    found = dict.fromkeys(formats, Outcomes(0, 0, 0, 0, 0, 0))
    for source in entry.chunks() if formats else ():
        for fmt in formats:
            found[fmt] += blockwise_outcomes(source, fmt, casting, dead_below=cut)
    return found


def _group(
    name: str,
    tensors: list[TensorResult],
    formats: Sequence[Format],
    scales: Sequence[float],
    max_flushed: Fraction,
) -> Group:
    total = sum((tensor.sketch for tensor in tensors), Sketch())
    return Group(
        name,
        tuple(tensors),
        total,
        tuple(_cast(total, tensors, fmt, scales, max_flushed) for fmt in formats),
    )


def _cast(
    total: Sketch, tensors: list[TensorResult], fmt: Format, scales: Sequence[float], max_flushed: Fraction
) -> FormatResult:
    window = total.window(fmt, max_flushed, headroom=1)
    largest = max(tensors, key=lambda tensor: tensor.sketch.amax)
    most_flushed = None
    if window.high is not None:
        scale = 2.0 ** min(max(window.high, -1000), 1000)
        lost = {id(tensor): tensor.sketch.outcomes(fmt, scale).flushed for tensor in tensors}
        most = max(tensors, key=lambda tensor: lost[id(tensor)])
        most_flushed = most if lost[id(most)] else None
    nothing = Outcomes(0, 0, 0, 0, 0, 0)
    outcomes = {scale: sum((tensor.outcomes(fmt, scale) for tensor in tensors), nothing) for scale in scales}
    return FormatResult(fmt, outcomes, window, largest if largest.sketch.nonzero else None, most_flushed)


def _evidence(tensors: list[TensorResult], seen: _Seen) -> Evidence:
    narrow = {t.dtype for t in tensors if t.dtype not in ("float32", "float64")}
    stated = {scale for scale in seen.files.values() if scale is not None}
    return Evidence(
        files=len(seen.files),
        tensors=len(tensors),
        elements=sum(tensor.sketch.n for tensor in tensors),
        samples=sum(t.numel_full is not None and t.numel_full > t.sketch.n for t in tensors),
        narrow=tuple(sorted(narrow)),
        loss_scales=tuple(sorted(stated)),
        files_without_loss_scale=sum(scale is None for scale in seen.files.values()),
        skipped=tuple(seen.skipped),
    )
