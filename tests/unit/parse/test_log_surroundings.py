from bringup.parse.log_surroundings import engine_named, read_surroundings
from bringup.values.case import CaseLine


def read(*lines: str):
    return read_surroundings(
        [CaseLine(number=number, text=text) for number, text in enumerate(lines, start=1)]
    )


def test_a_report_of_the_environment_gives_versions_cards_and_variables():
    found = read(
        "PyTorch version: 2.8.0+cu128",
        "Nvidia driver version: 580.95.05",
        "vLLM Version: 0.11.0",
        "GPU 0: NVIDIA GeForce RTX 5090",
        "GPU 1: NVIDIA GeForce RTX 5090",
        "NCCL_P2P_DISABLE=1",
        "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123456789",
    )
    assert found.versions == {"torch": "2.8.0+cu128", "driver": "580.95.05", "vllm": "0.11.0"}
    assert found.gpus == ("NVIDIA GeForce RTX 5090",) * 2
    assert found.environment["NCCL_P2P_DISABLE"] == "1"
    assert "hf_abc" not in str(found)
    assert found.version_of("vllm") == "0.11.0"
    assert found.version_of(None) is None


def test_an_image_tag_is_a_version_and_a_table_names_cards():
    found = read(
        "docker run --gpus all vllm/vllm-openai:v0.6.3 --model m",
        "|   0  NVIDIA A10G                    On  |   00000000:00:1E.0 Off |                    0 |",
    )
    assert found.versions["vllm"] == "0.6.3"
    assert found.gpus == ("NVIDIA A10G",)


def test_the_engine_that_is_named_most():
    assert engine_named(["import vllm.engine", "vLLM", "sglang.launch_server"]) == "vllm"
    assert engine_named(["nothing"]) is None
