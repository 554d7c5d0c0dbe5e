"""Real engines: started when asked for, skipped with the reason otherwise."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bringup.errors import BringupError
from bringup.transport.weights import SMOLLM2, cache_folder, weights_file
from engine_environment import EngineUnavailableError, model_folder, python_of
from running_engine import Running, Verified, verified


@pytest.fixture(scope="session")
def weights() -> Path:
    """The demo's GGUF."""
    try:
        return weights_file(SMOLLM2, say=print)
    except BringupError as error:
        pytest.skip(f"no weights: {error.message}")


@pytest.fixture(scope="session")
def engine_python() -> Callable[[str], Path]:
    """The Python of an engine's environment, by the engine's name."""

    def python(name: str) -> Path:
        try:
            return python_of(name)
        except EngineUnavailableError as reason:
            pytest.skip(str(reason))

    return python


@pytest.fixture(scope="session")
def folder_of() -> Callable[[str, str, Path], Path]:
    """A model folder, by kind, name and the Python that makes it."""

    def folder(kind: str, name: str, python: Path) -> Path:
        try:
            return model_folder(kind, name, python)
        except EngineUnavailableError as reason:
            pytest.skip(str(reason))

    return folder


@pytest.fixture(scope="session")
def log_of() -> Callable[[str], Path]:
    """Where an engine's output is kept, by a name of the test's."""
    return lambda name: cache_folder() / "engines" / "logs" / f"{name}.log"


@pytest.fixture
def verify(tmp_path: Path) -> Callable[..., Verified]:
    """`bringup verify` of a running engine, with its recording replayed to the same report."""

    def outcome(engine: Running, *options: str) -> Verified:
        found = verified(engine.url, *options, folder=tmp_path)
        assert found.replayed == found.report
        assert found.replayed_exit_code == found.exit_code
        return found

    return outcome
