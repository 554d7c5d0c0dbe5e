"""The folder is the registry: every module of a one-file package holds one record of a known name."""

import importlib
import pkgutil
from importlib.metadata import entry_points
from types import ModuleType


def load(package: str, attribute: str) -> dict[str, object]:
    """Records of `package` by module name, in alphabetical order.

    Third parties add theirs through an entry-point group named like the package; a name that is taken is
    an error, never an override.
    """
    parent: ModuleType = importlib.import_module(package)
    found: dict[str, object] = {
        info.name: getattr(importlib.import_module(f"{package}.{info.name}"), attribute)
        for info in sorted(pkgutil.iter_modules(parent.__path__), key=lambda info: info.name)
        if not info.name.startswith("_")
    }
    for point in entry_points(group=package):
        if point.name in found:
            raise ValueError(f"`{point.name}` of {point.value} is already taken in {package}")
        found[point.name] = point.load()
    return found
