"""Recording of a program that knows nothing of precsim: watches optimizers and loss scalers as they are made."""

from __future__ import annotations

import atexit
import json
import os
import sys
from typing import Any

from precsim.errors import InputError
from precsim.recording.recorder import Recorder, record

__all__ = ["VARIABLE", "install"]

VARIABLE = "PRECSIM_RECORD"
"""Environment variable with `record`'s arguments as JSON."""


def install() -> None:
    """Watch this process, as the environment variable says."""
    options = json.loads(os.environ[VARIABLE])
    watch = _Watch(options.pop("path"), options)
    watch.begin()
    atexit.register(watch.end)


class _Watch:
    def __init__(self, path: str, options: dict[str, Any]) -> None:
        self.path, self.options = path, options
        self.waiting: list[Any] = []  # optimizers whose model has not run yet
        self.recorders: list[Recorder] = []
        self.scaler: Any = None
        self.failed = False
        self.process = os.getpid()
        self.inside = False

    def begin(self) -> None:
        import torch
        from torch.amp import GradScaler
        from torch.nn.modules.module import register_module_forward_pre_hook

        watch = self
        plain_optimizer, plain_scaler = torch.optim.Optimizer.__init__, GradScaler.__init__

        def optimizer_made(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            plain_optimizer(optimizer, *args, **kwargs)
            if all(known is not optimizer for known in watch.waiting):
                watch.waiting.append(optimizer)

        def scaler_made(scaler: Any, *args: Any, **kwargs: Any) -> None:
            plain_scaler(scaler, *args, **kwargs)
            if scaler.is_enabled():
                watch.scaler = scaler
                for recorder in watch.recorders:
                    recorder.use_scaler(scaler)

        torch.optim.Optimizer.__init__ = optimizer_made  # type: ignore[method-assign, assignment]
        GradScaler.__init__ = scaler_made  # type: ignore[method-assign, assignment]
        register_module_forward_pre_hook(self._running)

    def _running(self, module: Any, _: Any) -> None:
        """A module is called, the outermost first."""
        import torch

        if (
            not self.waiting
            or self.failed
            or self.inside
            or torch.compiler.is_compiling()
            or not torch.is_grad_enabled()
        ):
            return
        own = {id(p) for p in module.parameters()}
        for optimizer in list(self.waiting):
            if any(id(p) in own for group in optimizer.param_groups for p in group["params"]):
                self.waiting.remove(optimizer)
                self.inside = True
                try:
                    self._attach(module, optimizer)
                finally:
                    self.inside = False

    def _attach(self, module: Any, optimizer: Any) -> None:
        number = len(self.recorders)
        path = self.path if not number else f"{self.path}.{number + 1}"
        try:
            self.recorders.append(record(module, optimizer, path, scaler=self.scaler, **self.options))
        except InputError as error:
            self.failed = True
            print(f"precsim: error: {error}; nothing is recorded, the program goes on", file=sys.stderr)

    def end(self) -> None:
        """Finish the folders and say what is in them."""
        if os.getpid() != self.process:  # a data loader's worker
            return
        said = False
        for recorder in self.recorders:
            steps = recorder.recorded
            recorder.close()
            if not steps:
                continue
            said = True
            missing = (
                ""
                if recorder.incomplete_from is None
                else f", incomplete from step {recorder.incomplete_from} on"
            )
            if recorder.rank == 0:
                print(
                    f"precsim: recorded {len(steps)} steps ({steps[0]} … {steps[-1]}) in {recorder.path}{missing}\n"
                    f"precsim: next: precsim advise {recorder.path} --steps PLANNED",
                    file=sys.stderr,
                )
        if not said and not self.failed:
            print("precsim: nothing was recorded: no torch optimizer took a step on a model", file=sys.stderr)
