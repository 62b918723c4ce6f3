"""Found first on the path of programs that ``precsim record`` starts: waits for torch, then watches its optimizers.

Not part of the package's imports: Python itself imports this module at its start.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys


def _pass_on() -> None:
    """Run the sitecustomize that this one hides, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    rest = [path for path in sys.path if os.path.abspath(path or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


class _Watcher(importlib.abc.MetaPathFinder):
    """Lets torch be imported as ever, and calls precsim afterwards."""

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return spec
        plain = spec.loader.exec_module

        def exec_module(module):  # type: ignore[no-untyped-def]
            plain(module)
            from precsim.recording.automatic import install

            install()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_pass_on()
if "PRECSIM_RECORD" in os.environ:
    sys.meta_path.insert(0, _Watcher())
