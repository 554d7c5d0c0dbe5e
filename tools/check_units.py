"""Sizes in powers of 1024 outside units.py: prints each place and exits with 1 when there is one.

Only `units.py` knows 1024; everything else says `8 * GIB`. Tests and benches may write what they like.

    python tools/check_units.py [FILE OR FOLDER ...]
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

EXEMPT = {
    "units.py": "the place",
    "sandbox_guard.py": "runs alone, with nothing but the standard library",
}
STEP = 1024
SHIFTS = (10, 20, 30, 40)  # 1 << 20 and 2**20 are a MiB
SPELT_OUT = tuple(STEP**power for power in (2, 3, 4))  # 1048576 and so on


def sizes_in(tree: ast.AST) -> Iterator[int]:
    """Line numbers on which a binary size is spelt out."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=int(value)) if value in SPELT_OUT:
                yield node.lineno
            case ast.BinOp(op=ast.LShift(), right=ast.Constant(value=int(shift))) if shift in SHIFTS:
                yield node.lineno
            case ast.BinOp(left=ast.Constant(value=2), op=ast.Pow(), right=ast.Constant(value=int(power))):
                if power in SHIFTS:
                    yield node.lineno
            case ast.BinOp(left=left, op=ast.Mult() | ast.Div() | ast.FloorDiv() | ast.Pow(), right=right):
                if any(isinstance(side, ast.Constant) and side.value == STEP for side in (left, right)):
                    yield node.lineno
            case _:
                pass


def main() -> None:
    """Check the files given, or all of src."""
    places = [Path(name) for name in sys.argv[1:]] or [Path("src")]
    files = [
        file for place in places for file in (sorted(place.rglob("*.py")) if place.is_dir() else [place])
    ]
    found = [
        f"{file}:{line}: write this size with KIB, MIB, GIB or TIB of bringup.units"
        for file in files
        if file.name not in EXEMPT
        for line in sorted(set(sizes_in(ast.parse(file.read_text(encoding="utf-8")))))
    ]
    print("\n".join(found) or f"{len(files)} files: no size in powers of 1024 outside units.py")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
