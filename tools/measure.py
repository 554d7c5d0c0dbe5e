"""The size of the code in figures, each beside its aim: a mirror, not a fence.

    python tools/measure.py                  the figures of this folder
    python tools/measure.py --against main   and those of another commit beside them

A long table or a state machine may be longer than the aim; nothing here fails a build.
"""

import argparse
import ast
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

MODULE_LINES = 500
FUNCTION_LINES = 60
LIMITS = {"C901": 10, "PLR0915": 40, "PLR0913": 6}
# Modules that may import inside functions: they keep something slow out of everybody's start.
LATE_IMPORTERS = ("__init__.py", "cli/main.py", "report/text.py", "report/html.py", "transport/hub.py")
IMPURE = ("cli", "tui", "mcp", "web", "flows", "transport", "load", "store", "registry.py", "__main__.py")
RUNS = 7  # times are the least of so many runs: everything else on the machine only adds


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One function and where it stands."""

    place: str
    lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One file of the package, read."""

    path: Path  # below src/bringup
    name: str  # bringup.parse.sse
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        """Lines, comments and blank ones included."""
        return self.text.count("\n")

    @property
    def is_pure(self) -> bool:
        """Whether it belongs to the packages that only calculate."""
        return self.path.parts[0] not in IMPURE

    def functions(self) -> Iterator[Function]:
        """Every function, methods and inner ones included."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                yield Function(place=f"{self.path}:{node.lineno} {node.name}", lines=lines)


def modules_of(root: Path) -> tuple[Module, ...]:
    """All modules of the package in the checkout at `root`."""
    package = root / "src" / "bringup"
    return tuple(_module(file, package) for file in sorted(package.rglob("*.py")))


def _module(file: Path, package: Path) -> Module:
    text = file.read_text(encoding="utf-8")
    path = file.relative_to(package)
    parts = ("bringup", *path.with_suffix("").parts)
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(path=path, name=name, text=text, tree=ast.parse(text))


def imports_of(module: Module, names: frozenset[str]) -> frozenset[str]:
    """Modules of the package that `module` imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found & names) - {module.name}


def modules_in_cycles(graph: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """Modules from which a chain of imports leads back to themselves."""

    def reached_from(start: str) -> set[str]:
        reached: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting.extend(graph[name])
        return reached

    return tuple(name for name in graph if name in reached_from(name))


def late_imports(module: Module) -> Iterator[str]:
    """Places of imports inside functions, in a module that is not meant to have them."""
    if str(module.path) in LATE_IMPORTERS or module.path.name == "__init__.py":
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Import | ast.ImportFrom):
                    yield f"{module.path}:{inner.lineno}"


def blind_excepts(module: Module) -> Iterator[str]:
    """Places that catch everything and do not raise it again."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ExceptHandler):
            names = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            catches_all = any(
                name is None or (isinstance(name, ast.Name) and name.id in ("Exception", "BaseException"))
                for name in names
            )
            if catches_all and not any(isinstance(inner, ast.Raise) for inner in ast.walk(node)):
                yield f"{module.path}:{node.lineno}"


def over_limits(root: Path) -> dict[str, list[str]]:
    """Places over each of ruff's limits, those that a `noqa` excuses included."""
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--ignore-noqa",
        "--no-cache",
        "--exit-zero",
    ]
    command += ["--output-format", "json", "--select", ",".join(LIMITS)]
    command += ["--config", f"lint.mccabe.max-complexity={LIMITS['C901']}"]
    command += ["--config", f"lint.pylint.max-statements={LIMITS['PLR0915']}"]
    command += ["--config", f"lint.pylint.max-args={LIMITS['PLR0913']}"]
    done = subprocess.run([*command, "src"], cwd=root, capture_output=True, text=True, check=True)
    found: dict[str, list[str]] = {code: [] for code in LIMITS}
    for one in json.loads(done.stdout):
        file = Path(one["filename"]).relative_to((root / "src" / "bringup").resolve())
        found[one["code"]].append(f"{file}:{one['location']['row']}")
    return found


def percentile(values: list[int], share: float) -> int:
    """The smallest value that `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * round(share * 100) // 100) - 1)] if ordered else 0


def import_seconds(root: Path) -> float | None:
    """CPU seconds of `import bringup` in a fresh interpreter; None when it fails."""
    code = "import time; begun = time.process_time(); import bringup; print(time.process_time() - begun)"
    runs = [_run(root, "-c", code) for _ in range(RUNS)]
    texts = [run.stdout for run in runs if run.returncode == 0]
    return min(map(float, texts)) if texts else None


def help_seconds(root: Path) -> float | None:
    """Wall seconds of `bringup --help`, start of the interpreter included; None when it fails."""
    best: float | None = None
    for _ in range(RUNS):
        begun = time.perf_counter()
        if _run(root, "-m", "bringup", "--help").returncode:
            return None
        wall = time.perf_counter() - begun
        best = wall if best is None else min(best, wall)
    return best


def _run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )


def lines_below(folder: Path) -> int:
    """Lines of all Python files below `folder`."""
    return sum(file.read_text(encoding="utf-8").count("\n") for file in folder.rglob("*.py"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the report."""

    name: str
    value: float | None
    aim: str
    places: tuple[str, ...] = ()  # what is over the aim
    unit: str = ""


def figures(root: Path) -> tuple[Figure, ...]:
    """All figures of the checkout at `root`."""
    modules = modules_of(root)
    names = frozenset(module.name for module in modules)
    functions = [function for module in modules for function in module.functions()]
    long_modules = [f"{one.path} {one.lines}" for one in modules if one.lines > MODULE_LINES]
    long_functions = [f"{one.place} {one.lines}" for one in functions if one.lines > FUNCTION_LINES]
    cycles = modules_in_cycles({module.name: imports_of(module, names) for module in modules})
    limits = over_limits(root)
    late = [place for module in modules for place in late_imports(module)]
    ignored = [
        str(one.path) for one in modules for _ in range(one.text.count("# type: ignore")) if one.is_pure
    ]
    blind = [place for module in modules for place in blind_excepts(module)]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    code, tests = lines_below(root / "src"), lines_below(root / "tests")
    lengths = [one.lines for one in functions]
    cpu, wall = import_seconds(root), help_seconds(root)
    return (
        Figure(name="modules", value=len(modules), aim=""),
        Figure(name="lines of code", value=code, aim=""),
        Figure(name="longest module", value=max(one.lines for one in modules), aim="<= 500", unit="lines"),
        Figure(name="modules over 500 lines", value=len(long_modules), aim="0", places=tuple(long_modules)),
        Figure(name="functions", value=len(functions), aim=""),
        Figure(name="longest function", value=max(lengths), aim="<= 60", unit="lines"),
        Figure(
            name="functions over 60 lines", value=len(long_functions), aim="0", places=tuple(long_functions)
        ),
        Figure(name="functions, 90th percentile", value=percentile(lengths, 0.9), aim="<= 35", unit="lines"),
        Figure(name="complexity over 10", value=len(limits["C901"]), aim="0", places=tuple(limits["C901"])),
        Figure(
            name="statements over 40", value=len(limits["PLR0915"]), aim="0", places=tuple(limits["PLR0915"])
        ),
        Figure(
            name="parameters over 6", value=len(limits["PLR0913"]), aim="0", places=tuple(limits["PLR0913"])
        ),
        Figure(name="modules in import cycles", value=len(cycles), aim="0", places=cycles),
        Figure(name="imports inside functions, elsewhere", value=len(late), aim="0", places=tuple(late)),
        Figure(name="type: ignore, pure packages", value=len(ignored), aim="0", places=tuple(ignored)),
        Figure(name="blind excepts", value=len(blind), aim="<= 1", places=tuple(blind)),
        Figure(name="core dependencies", value=len(project["dependencies"]), aim="<= 9"),
        Figure(name="tests : code", value=tests / code, aim="1 to 1.5"),
        Figure(name="import bringup, CPU", value=None if cpu is None else cpu * 1000, aim="< 40", unit="ms"),
        Figure(
            name="bringup --help, wall", value=None if wall is None else wall * 1000, aim="< 150", unit="ms"
        ),
    )


def figures_at(reference: str) -> tuple[Figure, ...]:
    """All figures of another commit, unpacked into a folder of its own."""
    archive = subprocess.run(["git", "archive", reference], capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(archive)) as packed:
            packed.extractall(folder, filter="data")
        return figures(Path(folder).resolve())


def number(value: float | None) -> str:
    """A figure as people read it; `-` where it could not be taken."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--against", metavar="REF", help="show the figures of this commit beside them")
    options = parser.parse_args()
    now = figures(Path.cwd())
    before = {one.name: one.value for one in figures_at(options.against)} if options.against else {}
    for one in now:
        line = f"{one.name:36} {number(one.value):>8} {one.unit:6} {one.aim and f'aim {one.aim}':13}"
        if options.against:
            was = before.get(one.name)
            is_changed = number(was) != number(one.value)
            line += f" {options.against}: {number(was)}" + (" *" if is_changed else "")
        print(line.rstrip())
        for place in one.places:
            print(f"    {place}")


if __name__ == "__main__":
    main()
