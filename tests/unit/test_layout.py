"""The layout is what the code relies on: one record per file, a place for every package, a lock that fits."""

import configparser
import importlib
import inspect
import pkgutil
import re
import tomllib
from pathlib import Path

import pytest

from bringup import registry
from bringup.checks import Check
from bringup.engines import Engine
from bringup.flows.snapshot import sources
from bringup.machine import Subject, Target
from bringup.vendors import Vendor

ROOT = Path(__file__).resolve().parents[2]
ONE_FILE_PACKAGES = {
    "bringup.checks": ("CHECK", Check),
    "bringup.engines": ("ENGINE", Engine),
    "bringup.machine": ("SUBJECT", Subject),
    "bringup.vendors": ("VENDOR", Vendor),
}
# What may touch the world, or joins what does: everything else only calculates.
IMPURE = {"__main__", "cli", "flows", "load", "registry", "transport"}
MODULES = [
    pytest.param(package, info.name, id=f"{package}.{info.name}")
    for package in ONE_FILE_PACKAGES
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__)
]


@pytest.mark.parametrize(("package", "name"), MODULES)
def test_every_module_of_a_one_file_package_has_its_record_and_says_what_it_is(package, name):
    attribute, kind = ONE_FILE_PACKAGES[package]
    module = importlib.import_module(f"{package}.{name}")
    assert isinstance(getattr(module, attribute, None), kind), f"{package}.{name} has no {attribute}"
    assert len((module.__doc__ or "").split()) >= (1 if kind is Engine else 4), (
        f"{package}.{name} says nothing"
    )
    assert registry.load(package, attribute)[name] is getattr(module, attribute)
    said = " ".join(inspect.getdoc(part) or "" for part in (module, *_files_of(module)))
    assert re.search(r"\b(Source|Seen in): \S", said), (
        f"{package}.{name} does not say where its facts come from"
    )


def _files_of(module):
    """The modules of a folder; none of a single file."""
    places = getattr(module, "__path__", ())
    return [
        importlib.import_module(f"{module.__name__}.{info.name}") for info in pkgutil.iter_modules(places)
    ]


FORMATS = sorted(
    path.stem
    for path in (ROOT / "src" / "bringup" / "parse").glob("*.py")
    if re.match(
        r"nvidia_(?!frame)|(amd|rocm|xpu)_smi|amdgpu|df|proc$|prometheus|systemd|topo|pci|sse|chat$",
        path.stem,
    )
)


@pytest.mark.parametrize("name", FORMATS)
def test_every_reader_of_a_foreign_format_says_where_it_is_described(name):
    doc = inspect.getdoc(importlib.import_module(f"bringup.parse.{name}"))
    assert re.search(r"\bSource: \S", doc or ""), name


def test_checks_have_titles_of_their_own_in_known_sections_and_phases():
    checks = registry.load("bringup.checks", "CHECK")
    assert len({check.title for check in checks.values()}) == len(checks)
    for name, check in checks.items():
        assert check.section in {"function", "resources", "capacity"}, name
        assert check.phase in {"shared", "exclusive", "hostile", "load", "last", "judge"}, name
        assert (check.asks is None) == (check.phase == "judge"), (
            f"{name}: a check that asks is not of `judge`"
        )


def test_questions_have_keys_of_their_own_and_exactly_one_way_to_be_asked():
    questions = sources().questions(Target(port=8000))
    assert len({question.key for question in questions}) == len(questions)
    for question in questions:
        assert bool(question.argv) != bool(question.script), question.key
        assert "#!" not in question.script, question.key


def installed(folder, group, name, value):
    """A distribution in `folder` that adds one entry point."""
    info = folder / "third_party-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")


def test_a_third_party_adds_a_check(tmp_path, monkeypatch):
    installed(tmp_path, "bringup.checks", "of_somebody", "bringup.checks.fact:CHECK")
    monkeypatch.syspath_prepend(tmp_path)
    checks = registry.load("bringup.checks", "CHECK")
    assert checks["of_somebody"] is checks["fact"]


def test_a_taken_name_is_refused(tmp_path, monkeypatch):
    installed(tmp_path, "bringup.checks", "fact", "bringup.checks.fact:CHECK")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"`fact` of bringup\.checks\.fact:CHECK is already taken"):
        registry.load("bringup.checks", "CHECK")


def test_every_package_that_only_calculates_is_under_the_purity_contract():
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    pure = set(contracts["importlinter:contract:pure"]["source_modules"].split())
    packages = {info.name for info in pkgutil.iter_modules([str(ROOT / "src" / "bringup")])}
    assert {f"bringup.{name}" for name in packages - IMPURE} == pure


def requirements(specifiers):
    return {re.split(r"[<>=!~;\[ ]", one, maxsplit=1)[0].lower().replace("_", "-") for one in specifiers}


def test_the_lock_names_what_the_project_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    ours = next(package for package in lock["package"] if package["name"] == "bringup")["metadata"]
    wanted = requirements(project["project"]["dependencies"])
    for extra in project["project"]["optional-dependencies"].values():
        wanted |= requirements(extra)
    assert {one["name"] for one in ours["requires-dist"]} == wanted, "run `uv lock`"
    for group, specifiers in project["dependency-groups"].items():
        assert {one["name"] for one in ours["requires-dev"][group]} == requirements(specifiers), (
            "run `uv lock`"
        )
