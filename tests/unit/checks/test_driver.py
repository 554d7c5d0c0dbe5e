import pytest

from bringup.checks.driver import CHECK
from bringup.values.host import EngineProcess, GpuDriver, MappedLibrary


def library(name, version, pid=100):
    return MappedLibrary(pid=pid, name=name, version=version)


def judge(make, *mapped, gpus=None, environment=None, gpu_state=None, with_engine=True, **versions):
    usual = {
        "module": "595.58.03",
        "is_open": True,
        "installed": "595.58.03",
        "library": "595.58",
        "cuda": "13.2",
    }
    engine = EngineProcess(pid=100, port=8000, children=(101,), environment=environment or {})
    host = make.box(
        *((make.card(0),) if gpus is None else gpus),
        driver=GpuDriver(mapped=mapped, **{**usual, **versions}),
        engines=(engine,) if with_engine else (),
        gpu_state=gpu_state,
    )
    return make.judge(CHECK, make.deployment(host=host))


def found(make, *mapped, **more):
    return make.found(judge(make, *mapped, **more))


def test_of_one_release(make):
    judgement = judge(make, library("libcuda", "595.58.03"), library("libcudart", "12.8.90"))
    assert make.found(judgement) == {"driver": "ok"}
    assert judgement.findings[0].summary == (
        "595.58.03 (open kernel module), CUDA up to 13.2, engine built with CUDA 12.8.90"
    )


def test_libraries_of_another_release(make):
    judgement = judge(make, library="590.48", installed="590.48.01")
    assert make.found(judgement) == {"driver.mismatch": "failure"}
    assert judgement.findings[0].summary == "kernel module 595.58.03 is loaded, the libraries are 590.48"


def test_a_mismatch_hides_the_cards_and_is_told_nevertheless(make):
    state = "driver/library mismatch, library 570.195: the kernel module is of another version"
    assert found(make, gpus=(), library=None, gpu_state=state) == {"driver.mismatch": "failure"}
    assert found(make, gpus=(), library=None) == {}


def test_another_driver_waits_for_the_next_boot(make):
    assert found(make, installed="610.43.02") == {"driver.installed": "note"}
    assert found(make, installed=None) == {"driver": "ok"}


@pytest.mark.parametrize(
    ("cuda", "driver", "expected"),
    [
        ("13", "580.65.06", {"driver": "ok"}),
        ("13", "575.57.08", {"driver.cuda": "warning"}),
        ("12.8.90", "570.86.15", {"driver": "ok"}),
        ("12", "470.256.02", {"driver.cuda": "warning"}),
        ("11.0", "470.256.02", {"driver": "ok"}),
    ],
)
def test_the_driver_that_cuda_needs(make, cuda, driver, expected):
    gpus = (make.card(0, compute_capability="7.5", driver_version=driver),)
    versions = {"module": driver, "installed": driver, "library": driver}
    assert found(make, library("libcudart", cuda), gpus=gpus, **versions) == expected
    assert found(make, gpus=gpus, environment={"CUDA_VERSION": cuda}, **versions) == expected


def test_a_compatibility_package_makes_up_for_an_old_driver(make):
    old = {"module": "535.54.03", "installed": None, "library": "535.54"}
    gpus = (make.card(0, compute_capability="9.0"),)
    mapped = (library("libcudart", "13"), library("libcuda", "580.65.06"))
    assert found(make, *mapped, gpus=gpus, **old) == {"driver.engine_library": "note"}


def test_libraries_of_other_programs_do_not_count(make):
    assert found(make, library("libcuda", "590.48.01", pid=7)) == {"driver": "ok"}
    assert found(make, library("libcuda", "590.48.01", pid=101)) == {"driver.engine_library": "note"}
    assert found(make, library("libcuda", "590.48.01", pid=7), with_engine=False) == {
        "driver.engine_library": "note"
    }
    assert found(make, library("libcuda", "1")) == {"driver": "ok"}  # the name of the interface, no release


def test_a_card_that_is_newer_than_the_driver(make):
    old = {"module": "550.163.01", "installed": None, "library": "550.163"}
    assert found(make, **old) == {"driver.card": "warning"}
    assert found(make, gpus=(make.card(0, compute_capability="9.0"),), **old) == {"driver": "ok"}


def test_blackwell_needs_the_open_module(make):
    assert found(make, is_open=False) == {"driver.card": "warning"}
    assert found(make, is_open=None) == {"driver": "ok"}
    assert found(make, is_open=False, gpus=(make.card(0, compute_capability="8.9"),)) == {"driver": "ok"}


def test_what_an_old_recording_holds_is_enough(make):
    host = make.box(make.card(0))
    assert make.found(make.judge(CHECK, make.deployment(host=host))) == {"driver": "ok"}
    assert make.found(make.judge(CHECK, make.deployment(host=make.box()))) == {}
    assert make.found(make.judge(CHECK, make.deployment())) == {}


def test_a_cuda_that_knows_no_such_card(make):
    judgement = judge(make, library("libcudart", "12.4.127"))
    assert make.found(judgement) == {"driver.kernels": "warning"}
    assert "12.8 or newer" in judgement.findings[0].summary
    assert found(make, library("libcudart", "12")) == {"driver": "ok"}  # its minor version is not known
    assert found(make, library("libcudart", "12.4"), gpus=(make.card(0, compute_capability="9.0"),)) == {
        "driver": "ok"
    }
