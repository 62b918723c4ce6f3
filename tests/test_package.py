"""The package guards itself: what it loads, what it offers, and what it leaves alone in the process."""

import ast
import importlib
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import precsim

PACKAGE = Path(precsim.__file__).parent

HEAVY = {
    "altair",
    "click",
    "ml_dtypes",
    "pandas",
    "pyarrow",
    "rich",
    "safetensors",
    "scipy",
    "torch",
}
"""Packages that `import precsim` leaves to the rooms that need them."""

ROOMS = [
    "errors",
    "wording",
    "number",
    "kernels",
    "cast",
    "scaling",
    "matmul",
    "sketches",
    "runs",
    "analyze",
    "amp",
    "recording",
    "replay",
    "advice",
    "verify",
    "report",
    "cli",
]
"""From the ground up: a room imports none that comes after it."""

FLUSH_PROBE = """
import math
two, smallest = 2.0, math.ldexp(1.0, -1074)
print("result flushed" if math.ldexp(1.0, -1022) / two == 0 else "kept")
print("input flushed" if smallest * math.ldexp(1.0, 1000) == 0 else "kept")
"""


def python(code: str) -> str:
    """What a new process prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def heavy_after(statement: str) -> set[str]:
    """The heavy packages that a new process has loaded after the statement."""
    return HEAVY & set(python(f"{statement}\nimport sys\nprint(*sys.modules)").split())


def flushes_after(statement: str) -> bool:
    """Whether a new process flushes subnormal numbers to zero after the statement."""
    return "flushed" in python(statement + FLUSH_PROBE)


def module_names() -> list[str]:
    """Every module of the package, by its file."""
    files = sorted(PACKAGE.rglob("*.py"))
    dotted = (".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts) for file in files)
    return [name.removesuffix(".__init__") for name in dotted if not name.endswith("__main__")]


def room_of(module: str) -> str | None:
    """The room that a module is in, None where it is a door to them all (`precsim` itself, `precsim.configuration`)."""
    parts = module.split(".")
    return parts[1] if parts[0] == "precsim" and len(parts) > 1 and parts[1] in ROOMS else None


def imports_of(file: Path) -> set[str]:
    """Every module that a file imports, at its top or within a function, but not for type checkers alone."""
    names = set()
    pending: list[ast.AST] = [ast.parse(file.read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending.extend(node.orelse)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {node.module or ""}
            names |= {f"precsim.{alias.name}" for alias in node.names if node.module == "precsim"}
        else:
            pending.extend(ast.iter_child_nodes(node))
    return names


def upward_imports(room: str, imported: set[str]) -> set[str]:
    """The imports that lead to a room above."""
    above = set(ROOMS[ROOMS.index(room) + 1 :])
    return {name for name in imported if room_of(name) in above}


def test_import_loads_nothing_heavy():
    assert heavy_after("import precsim") == set()


@pytest.mark.parametrize("package", ["scipy", "rich", "torch"])
def test_a_heavy_import_would_be_seen(package):
    pytest.importorskip(package, reason=f"{package} is not installed, so nothing can import it")
    assert package in heavy_after(f"import precsim, {package}")


def test_import_and_engines_leave_flush_to_zero_off():
    assert not flushes_after(
        "import precsim; precsim.available_engines(); precsim.encode([1e-7, 3.0], precsim.FP16)"
    )


def test_flush_to_zero_would_be_seen():
    pytest.importorskip("torch", reason="torch is what sets flush-to-zero here")
    assert flushes_after("import torch; assert torch.set_flush_denormal(True)")


@pytest.mark.parametrize("name", module_names())
def test_all_lists_what_is_there(name):
    if name == "precsim.kernels.native_engine" and "native" not in precsim.available_engines():
        pytest.skip("the native engine was not built here: no C++ compiler was found")
    module = importlib.import_module(name)
    names = getattr(module, "__all__", [])
    assert [entry for entry in names if not hasattr(module, entry)] == []
    assert len(names) == len(set(names))


def test_public_names_are_complete():
    loaded = {name for name, value in vars(precsim).items() if not isinstance(value, type(sys))}
    public = {name for name in loaded if not name.startswith("_")} - {"annotations", "Any", "TYPE_CHECKING"}
    assert public | set(precsim._LAZY) == set(precsim.__all__)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'fp17'"):
        _ = precsim.fp17


@pytest.mark.parametrize("room", [room for room in ROOMS if (PACKAGE / room).is_dir()])
def test_a_room_imports_none_above_it(room):
    for file in sorted((PACKAGE / room).rglob("*.py")):
        assert upward_imports(room, imports_of(file)) == set(), file


def test_an_upward_import_would_be_seen(tmp_path):
    file = tmp_path / "room.py"
    file.write_text("def f():\n    from precsim.cast import encode\n")
    assert upward_imports("number", imports_of(file)) == {"precsim.cast"}
    file.write_text("from precsim import cast\n")
    assert upward_imports("kernels", imports_of(file)) == {"precsim.cast"}


def test_the_reference_stands_on_the_standard_library_alone():
    roots = {
        name.partition(".")[0] for file in (PACKAGE / "number").rglob("*.py") for name in imports_of(file)
    }
    assert roots - sys.stdlib_module_names == {"precsim"}


def test_types_are_shipped():
    assert (PACKAGE / "py.typed").exists()


def test_command_is_installed():
    (command,) = entry_points(group="console_scripts", name="precsim")
    assert callable(command.load())
