"""`record`: sketches of gradients at every optimizer step, by hooks alone."""

from __future__ import annotations

import fnmatch
import platform
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from precsim.errors import InputError
from precsim.recording.sketching import local_tensor, sketch_tensor, stored_dtype, unscaled
from precsim.runs.folder import RunFolder
from precsim.runs.sketch_file import SketchRow
from precsim.sketches import Sketch

if TYPE_CHECKING:
    import os

    import torch

__all__ = ["KINDS", "Recorder", "record"]

KINDS = ("grad", "act_grad", "act", "weight")
"""What can be recorded: gradients of parameters and of modules' outputs, those outputs, parameters before the step."""


def record(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    path: str | os.PathLike[str],
    *,
    scaler: Any = None,
    every: int = 1,
    kinds: Sequence[str] = ("grad", "act_grad"),
    names: str | Sequence[str] = "*",
    tensors: str | Sequence[str] = (),
    tensors_every: int = 100,
    sample: int | None = None,
    seed: int = 0,
    errors: bool = False,
    rank: int | None = None,
    first_step: int | None = None,
    loss_scale: float | None = None,
) -> Recorder:
    """Record a training while it runs.

    A context manager, or call `Recorder.close`. Removing it leaves model, optimizer and scaler as they were.

    Parameters
    ----------
    model : torch.nn.Module
        Plain, compiled, wrapped by DistributedDataParallel or fully sharded (each process records its shards).
    optimizer : torch.optim.Optimizer
        One optimizer step is one step of the record, however many micro-batches it has.
    path : path_like
        Folder of the run; made, or continued.
    scaler : torch.amp.GradScaler, optional
        Its scale is noted, and gradients are divided by it: exactly, since it is a power of two. Without one gradients
        are taken to carry ``loss_scale``, or 1.
    every : int
        Record each so many steps, from the first on.
    kinds : sequence of {"grad", "act_grad", "act", "weight"}
        Gradients of parameters after accumulation and before clipping, gradients of modules' outputs, those outputs,
        parameters.
    names : str or sequence of str
        Globs of the parameters and modules to record.
    tensors : str or sequence of str
        Globs of those of which whole tensors are kept too, gradients of parameters alone.
    tensors_every : int
        Keep them at each so many steps.
    sample : int, optional
        Keep at most so many elements of each, chosen by ``seed``, the greatest among them.
    errors : bool
        Sketches that can tell errors too, not counts alone: more time, and ten times the size.
    rank : int, optional
        Number of this process; torch.distributed's where it runs.
    first_step : int, optional
        Number of the first optimizer step to come; else it goes on after the last one in the folder, or begins at 0.
    loss_scale : float, optional
        Scale that gradients carry where there is no scaler.

    Returns
    -------
    Recorder

    Raises
    ------
    InputError
        For unknown kinds, a folder that holds something else, or parameters of the optimizer that the model has not.

    Examples
    --------
    >>> import tempfile, torch, precsim as ps
    >>> model = torch.nn.Linear(4, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> with ps.record(model, optimizer, folder) as recorder:
    ...     for _ in range(3):
    ...         optimizer.zero_grad()
    ...         loss = model(torch.ones(5, 4)).square().mean()
    ...         loss.backward()
    ...         recorder.note(loss=loss)
    ...         optimizer.step()
    >>> sorted({entry.name for entry in ps.open_run(folder)}), recorder.recorded
    (['act_grad/output', 'grad/bias', 'grad/weight'], [0, 1, 2])
    """
    if every < 1 or tensors_every < 1 or (sample is not None and sample < 1):
        raise InputError("every, tensors_every and sample must be at least 1")
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise InputError(f"unknown kind {unknown[0]!r}: choose {', '.join(KINDS)}")
    number = _rank() if rank is None else rank
    folder = RunFolder.open(path, _description(model, optimizer, scaler, kinds), number)
    done = folder.recorded_steps
    return Recorder(
        model=model,
        optimizer=optimizer,
        folder=folder,
        scaler=scaler,
        every=every,
        kinds=tuple(kinds),
        names=_globs(names),
        tensors=_globs(tensors),
        tensors_every=tensors_every,
        sample=sample,
        seed=seed,
        errors=errors,
        step=first_step if first_step is not None else (done[-1] + 1 if done else 0),
        loss_scale=1.0 if loss_scale is None else loss_scale,
    )


def _globs(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _rank() -> int:
    import torch.distributed

    ready = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_rank() if ready else 0


def _description(model: Any, optimizer: Any, scaler: Any, kinds: Sequence[str]) -> dict[str, Any]:
    """What run.json says."""
    import torch

    from precsim import __version__

    parameters = {name: list(p.shape) for name, p in model.named_parameters()}
    devices = sorted({str(p.device) for p in model.parameters()})
    return {
        "precsim": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "devices": devices,
        "kinds": list(kinds),
        "optimizer": type(optimizer).__name__,
        "scaler": None if scaler is None else _scaler_settings(scaler),
        "autocast": {
            "cpu": torch.is_autocast_enabled("cpu"),
            "cuda": torch.is_autocast_enabled("cuda"),
        },
        "modules": {name: type(module).__name__ for name, module in model.named_modules()},
        "parameters": parameters,
    }


def _scaler_settings(scaler: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {"type": type(scaler).__name__}
    for name in ("get_growth_factor", "get_backoff_factor", "get_growth_interval", "is_enabled"):
        if hasattr(scaler, name):
            settings[name.removeprefix("get_")] = getattr(scaler, name)()
    return settings


class Recorder:
    """Made by `record`.

    Attributes
    ----------
    step : int
        Number of the optimizer step to come.
    recorded : list of int
        Steps that are in the folder, by this recorder.
    micro_batches : int
        Backward passes since the last step.
    """

    def __init__(
        self,
        *,
        model: Any,
        optimizer: Any,
        folder: RunFolder,
        scaler: Any,
        every: int,
        kinds: tuple[str, ...],
        names: tuple[str, ...],
        tensors: tuple[str, ...],
        tensors_every: int,
        sample: int | None,
        seed: int,
        errors: bool,
        step: int,
        loss_scale: float,
    ) -> None:
        self.step, self.recorded, self.micro_batches = step, list[int](), 0
        self._first = step
        self._model, self._optimizer, self._folder, self._scaler = model, optimizer, folder, scaler
        self._every, self._kinds, self._names = every, kinds, names
        self._tensors, self._tensors_every, self._sample, self._seed = tensors, tensors_every, sample, seed
        self._errors, self._loss_scale = errors, loss_scale
        self._noted: dict[str, Any] = {}
        self._gradients: dict[str, tuple[Sketch, str]] = {}
        self._kept: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}
        self._activations: dict[tuple[str, str], tuple[Sketch, str]] = {}
        self._weights: dict[str, tuple[Sketch, str]] = {}
        self._changed: set[str] = set()
        self._waiting = False
        self._in_scaler = False
        self._norm: float | None = None
        self._autocast: str | None = None
        self._parameters = self._own_parameters()
        self._undo: list[Callable[[], object]] = []
        try:
            self._attach()
        except BaseException:
            self._detach()
            raise

    # ---- what users call ---------------------------------------------------------------------------------------

    def note(self, **scalars: Any) -> None:
        """Note numbers of the step to come, such as ``loss``."""
        for name, value in scalars.items():
            self._noted[name] = float(value.detach() if hasattr(value, "detach") else value)

    def use_scaler(self, scaler: Any) -> None:
        """Record by a loss scaler that was made later."""
        if self._scaler is None and self._undo:
            self._scaler = scaler
            self._wrap_scaler()

    def close(self) -> None:
        """Take the hooks off and finish the folder. Safe to call twice."""
        if not self._undo:
            return
        self._detach()
        try:
            self._folder.close()
        except InputError as error:
            warnings.warn(f"precsim: {error}", stacklevel=2)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def rank(self) -> int:
        """Number of this process."""
        return self._folder.rank

    @property
    def path(self) -> Path:
        """The run folder."""
        return self._folder.path

    @property
    def incomplete_from(self) -> int | None:
        """First step that could not be written; None while all could."""
        return self._folder.incomplete_from

    # ---- hooks -------------------------------------------------------------------------------------------------

    def _own_parameters(self) -> dict[str, Any]:
        """The optimizer's parameters by the model's names; shared ones once."""
        wanted = {id(p) for group in self._optimizer.param_groups for p in group["params"]}
        named = {_plain(name): p for name, p in self._model.named_parameters() if id(p) in wanted}
        if not named:
            raise InputError("the optimizer has no parameter of this model: record the model that it trains")
        return {name: p for name, p in named.items() if self._wanted(name)}

    def _wanted(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self._names)

    def _attach(self) -> None:
        for name, parameter in self._parameters.items():
            if parameter.requires_grad and parameter.is_leaf:
                handle = parameter.register_post_accumulate_grad_hook(self._accumulated(name))
                self._undo.append(handle.remove)
        self._undo.append(self._model.register_forward_hook(lambda *_: self._note_autocast()).remove)
        if {"act_grad", "act"} & set(self._kinds):
            for name, module in self._model.named_modules():
                if self._wanted(_plain(name) or "output"):
                    self._undo.append(module.register_forward_hook(self._forward(_plain(name))).remove)
        self._undo.append(self._optimizer.register_step_pre_hook(self._before_step).remove)
        self._undo.append(self._optimizer.register_step_post_hook(self._after_step).remove)
        self._undo.append(_on_clipping(self._clipping))
        if self._scaler is not None:
            self._wrap_scaler()

    def _detach(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _recording(self) -> bool:
        return (self.step - self._first) % self._every == 0 and self._folder.incomplete_from is None

    def _accumulated(self, name: str) -> Callable[[Any], None]:
        def hook(_: Any) -> None:
            self._changed.add(name)
            if not self._waiting:
                from torch.autograd import Variable

                self._waiting = True
                engine = Variable._execution_engine
                # Wrappers that reduce gradients do so in callbacks at the end of the backward pass: a callback that is
                # queued by a callback comes after them.
                engine.queue_callback(lambda: engine.queue_callback(self._backward_done))

        return hook

    def _backward_done(self) -> None:
        self._waiting = False
        self.micro_batches += 1
        self._take_gradients(self._changed)
        self._changed.clear()

    def _take_gradients(self, names: Iterable[str]) -> None:
        if "grad" not in self._kinds or not self._recording():
            return
        keep = (self.step - self._first) % self._tensors_every == 0
        for name in list(names):
            gradient = self._parameters[name].grad
            if gradient is None:
                continue
            self._gradients[name] = (sketch_tensor(gradient, errors=self._errors), stored_dtype(gradient))
            if keep and any(fnmatch.fnmatchcase(name, pattern) for pattern in self._tensors):
                self._kept[name] = self._copy(name, gradient)

    def _copy(self, name: str, gradient: Any) -> Any:
        """A gradient to keep: whole, or a sample with its greatest element."""
        import torch

        dense = local_tensor(gradient)
        dense = (dense.to_dense() if dense.layout != torch.strided else dense).cpu().clone().contiguous()
        if self._sample is None or dense.numel() <= self._sample:
            return dense
        self._sizes[f"grad/{name}"] = dense.numel()
        flat = dense.reshape(-1)
        generator = torch.Generator().manual_seed(self._seed + self.step)
        chosen = torch.randperm(flat.numel(), generator=generator)[: self._sample]
        greatest = (
            torch.view_as_real(flat).abs().amax(-1).argmax()
            if flat.is_complex()
            else flat.float().abs().argmax()
        )
        chosen[-1] = greatest if not (chosen == greatest).any() else chosen[-1]
        return flat[chosen.sort().values].clone()

    def _forward(self, name: str) -> Callable[[Any, Any, Any], None]:
        def hook(_: Any, inputs: Any, output: Any) -> None:
            import torch

            if torch.compiler.is_compiling():
                return
            self._note_autocast()
            for label, tensor in _outputs(name or "output", output):
                if "act" in self._kinds and self._recording() and tensor.is_floating_point():
                    self._add("act", label, tensor)
                if (
                    "act_grad" in self._kinds
                    and tensor.requires_grad
                    and not hasattr(tensor, "_precsim_watched")
                ):
                    tensor._precsim_watched = (
                        True  # a container returns its last module's output: once is enough
                    )
                    tensor.register_hook(self._activation_gradient(label))

        return hook

    def _note_autocast(self) -> None:
        """Under autocast gradients pass through its type, whatever they are stored in."""
        import torch

        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                self._autocast = str(torch.get_autocast_dtype(device)).removeprefix("torch.")

    def _activation_gradient(self, label: str) -> Callable[[Any], None]:
        def hook(gradient: Any) -> None:
            if self._recording():
                self._add("act_grad", label, gradient)

        return hook

    def _add(self, kind: str, label: str, tensor: Any) -> None:
        found = sketch_tensor(tensor, errors=self._errors)
        before = self._activations.get((kind, label))
        self._activations[kind, label] = (
            found if before is None else before[0] + found,
            stored_dtype(tensor),
        )

    def _clipping(self, parameters: Any, norm: Any) -> None:
        """Gradients are about to be clipped (no norm yet), or were."""
        if norm is not None:
            if _shares(parameters, self._parameters.values()):
                self._norm = float(norm)
            return
        self._take_missing()

    def _take_missing(self) -> None:
        """Gradients that came without a hook, as those of fully sharded models do."""
        self._take_gradients([name for name in self._parameters if name not in self._gradients])

    def _before_step(self, *_: Any) -> None:
        self._take_missing()
        if "weight" in self._kinds and self._recording():
            for name, parameter in self._parameters.items():
                self._weights[name] = (sketch_tensor(parameter, errors=self._errors), stored_dtype(parameter))

    def _after_step(self, *_: Any) -> None:
        if not self._in_scaler:
            self._finish(skipped=False, found_inf=None, scale=self._loss_scale)

    def _wrap_scaler(self) -> None:
        scaler, recorder = self._scaler, self
        plain_step = scaler.step

        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if optimizer is not recorder._optimizer:
                return plain_step(optimizer, *args, **kwargs)
            scale = float(scaler.get_scale())
            recorder._take_missing()
            taken = 0

            def counted(*_: Any) -> None:
                nonlocal taken
                taken += 1

            handle = optimizer.register_step_post_hook(counted)
            recorder._in_scaler = True
            try:
                result = plain_step(optimizer, *args, **kwargs)
            finally:
                recorder._in_scaler = False
                handle.remove()
            enabled = scaler.is_enabled() if hasattr(scaler, "is_enabled") else True
            recorder._finish(
                skipped=not taken, found_inf=not taken if enabled else None, scale=scale if enabled else 1.0
            )
            return result

        scaler.step = step
        self._undo.append(lambda: delattr(scaler, "step"))

    # ---- one step ----------------------------------------------------------------------------------------------

    def _finish(self, *, skipped: bool, found_inf: bool | None, scale: float) -> None:
        if self._recording():
            self._write(skipped, found_inf, scale)
        self.step += 1
        self.micro_batches = 0
        self._norm = self._autocast = None
        for store in (
            self._noted,
            self._gradients,
            self._kept,
            self._sizes,
            self._activations,
            self._weights,
        ):
            store.clear()

    def _write(self, skipped: bool, found_inf: bool | None, scale: float) -> None:
        # Under autocast a gradient went through its type, however it is stored.
        rows = [
            self._row("grad", name, found, self._autocast or dtype, scale)
            for name, (found, dtype) in self._gradients.items()
        ]
        rows += [
            self._row(kind, name, found, dtype, scale if kind == "act_grad" else 1.0)
            for (kind, name), (found, dtype) in self._activations.items()
        ]
        rows += [
            self._row("weight", name, found, dtype, 1.0) for name, (found, dtype) in self._weights.items()
        ]
        scalars = {
            "loss_scale": scale,
            "found_inf": found_inf,
            "skipped": skipped,
            "lr": [float(group["lr"]) for group in self._optimizer.param_groups if "lr" in group],
            "grad_norm": self._norm,
            "micro_batches": self.micro_batches,
            "autocast": self._autocast,
            "unused": [
                name for name in self._parameters if name not in self._gradients and "grad" in self._kinds
            ],
            **self._noted,
        }
        try:
            self._folder.write_step(self.step, rows, scalars, *self._kept_tensors(scale))
        except InputError as error:
            self._folder.give_up(self.step)
            warnings.warn(
                f"precsim: {error}; nothing is recorded from step {self.step} on, training goes on",
                stacklevel=2,
            )
        else:
            self.recorded.append(self.step)

    def _kept_tensors(self, scale: float) -> tuple[Mapping[str, Any] | None, Mapping[str, str] | None]:
        import json

        if not self._kept:
            return None, None
        metadata = {"step": str(self.step), "loss_scale": repr(scale), "numel_full": json.dumps(self._sizes)}
        return {f"grad/{name}": tensor for name, tensor in self._kept.items()}, metadata

    def _row(self, kind: str, name: str, found: Sketch, dtype: str, scale: float) -> SketchRow:
        true, carried = unscaled(found, scale)
        return SketchRow(
            name, true, step=self.step, rank=self._folder.rank, kind=kind, dtype=dtype, loss_scale=carried
        )


_WRAPPERS = ("module", "_orig_mod", "_checkpoint_wrapped_module")


def _plain(name: str) -> str:
    """A name without what wrappers put before it."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def _outputs(name: str, output: Any) -> Iterable[tuple[str, Any]]:
    """The tensors of a module's output, with names."""
    import torch

    if isinstance(output, torch.Tensor):
        yield name, output
    elif isinstance(output, list | tuple):
        for i, part in enumerate(output):
            yield from _outputs(f"{name}[{i}]", part)
    elif isinstance(output, Mapping):
        for key, part in output.items():
            yield from _outputs(f"{name}[{key}]", part)


def _shares(parameters: Any, own: Iterable[Any]) -> bool:
    ids = {id(p) for p in own}
    return any(id(p) in ids for p in parameters)


_CLIPPERS = ("clip_grad_norm_", "clip_grad_value_")


def _on_clipping(told: Callable[[Any, Any], None]) -> Callable[[], None]:
    """Tell before torch's functions clip, and the norm that they found; returns what undoes that."""
    import functools

    import torch

    utils = torch.nn.utils
    plain = {name: getattr(utils, name) for name in _CLIPPERS}

    def wrapped(name: str) -> Any:
        @functools.wraps(plain[name])
        def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            told(given, None)
            norm = plain[name](given, *args, **kwargs)
            if norm is not None:
                told(given, norm)
            return norm

        return clip

    made = {name: wrapped(name) for name in _CLIPPERS}
    for name, function in made.items():
        setattr(utils, name, function)

    def undo() -> None:
        for name, function in made.items():
            if getattr(utils, name) is function:
                setattr(utils, name, plain[name])

    return undo
