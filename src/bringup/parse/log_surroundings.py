"""What a log tells beside the engine's own start-up lines: reports of the environment, variables, GPUs."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from bringup.parse.redact import redact_value
from bringup.values.case import CaseLine

_ENGINE_SIGNS = (
    ("sglang", re.compile(r"\bsglang[./:]|\bsgl_kernel\b|\bsgl-kernel\b|\bSGLang\b|\bSGLANG_\w+")),
    ("vllm", re.compile(r"\bvllm[./:]|\bvLLM\b|\bVLLM_\w+|\bvllm serve\b|\bEngineCore\b")),
    ("llama_cpp", re.compile(r"\bllama_\w+: |\bllama-server\b|\bggml_\w+|\bllama\.cpp\b|\bgguf_\w+")),
    ("tensorrt_llm", re.compile(r"\btensorrt_llm\b|\[TRT-LLM\]|\[TensorRT-LLM\]|\btrtllm-")),
    ("ollama", re.compile(r"\bollama\b")),
)
_VERSIONS = (
    (
        "vllm",
        re.compile(
            r"\bvLLM Version: (\d[\w.+-]*)|\bvllm(?:==|[- ]v?)(\d+\.\d+[\w.+]*)|vllm-openai:v(\d[\w.]*)"
        ),
    ),
    ("sglang", re.compile(r"\bsglang(?:==|: |[- ]v?)(\d+\.\d+[\w.+]*)|lmsysorg/sglang:v(\d[\w.]*)")),
    (
        "torch",
        re.compile(
            r"\bPyTorch version: (\d[\w.+]*)|^torch(?:==|: )(\d[\w.+]*)|"
            r"\[(?:pip3|conda)\] torch(?:==| +)(\d[\w.+]*)"
        ),
    ),
    (
        "transformers",
        re.compile(r"\btransformers(?:==|: )(\d[\w.]*)|\[(?:pip3|conda)\] transformers(?:==| +)(\d[\w.]*)"),
    ),
    ("flashinfer", re.compile(r"\bflashinfer(?:-python|_python)?(?:==|: )(\d[\w.+]*)")),
    ("triton", re.compile(r"\btriton(?:==|: )(\d[\w.]*)|\[(?:pip3|conda)\] triton(?:==| +)(\d[\w.]*)")),
    ("nccl", re.compile(r"\bNCCL version (\d[\d.]*)|using nccl==(\d[\d.]*)|nvidia-nccl-cu\d+==(\d[\d.]*)")),
    ("driver", re.compile(r"\b(?:Nvidia driver version|CUDA Driver Version|Driver Version): *(\d[\d.]*)")),
    ("cuda", re.compile(r"\bCUDA used to build PyTorch: (\d[\d.]*)")),
    ("cuda_driver", re.compile(r"\bCUDA Version: *(\d[\d.]*)")),
    (
        "cuda_toolkit",
        re.compile(r"\bCUDA runtime version: (\d[\d.]*)|\bnvcc.* V(\d[\d.]*)|release (\d+\.\d+), V\d"),
    ),
    ("python", re.compile(r"\bPython version: (\d[\d.]*)|^Python: (\d[\d.]*)")),
)
_GPU = re.compile(
    r"^\s*GPU (?P<index>[\d,]+)(?::| Compute)? (?!Compute)(?P<name>[A-Z][\w ./()-]+?)(?: \(UUID.*)?$"
)
_SMI_GPU = re.compile(
    r"\|\s+(?P<index>\d+)\s+(?P<name>(?:NVIDIA|Tesla|GeForce|Quadro)[\w .-]*?)\s+(?:On|Off|\.\.\.)"
)
_SETTING = re.compile(
    r"(?:^|\s|\bexport |-e |--env[= ]|Environment=\"?)"
    r"(?P<name>(?:VLLM|SGLANG|SGL|NCCL|CUDA|HF|TORCH|PYTORCH|GLOO|TRITON|TORCHINDUCTOR|RAY|TP|MAX_JOBS|LD|TMPDIR|GGML|LLAMA|FLASHINFER)[A-Z0-9_]*)"
    r"=(?P<value>\"[^\"]*\"|'[^']*'|\S*)"
)


# What a line must have one of for any of this to be read from it.
TEXTS = (
    *(
        "vLLM Version: ",
        "vllm-openai:v",
        "lmsysorg/sglang:v",
        "PyTorch version: ",
        "NCCL version ",
        "using nccl==",
    ),
    *("Driver Version: ", "Nvidia driver version: ", "CUDA used to build PyTorch: ", "CUDA Version: "),
    *(
        "CUDA runtime version: ",
        "Python version: ",
        "vllm==",
        "sglang==",
        "sglang: ",
        "torch==",
        "transformers==",
    ),
    *("GPU 0: ", "GPU 0,", "GPU 1: ", "GPU 2: ", "GPU 3: ", "GPU 4: ", "GPU 5: ", "GPU 6: ", "GPU 7: "),
    *("NVIDIA GeForce", "NVIDIA RTX", "NVIDIA A", "NVIDIA H", "NVIDIA B", "NVIDIA L"),
    *("VLLM_", "SGLANG_", "NCCL_", "CUDA_VISIBLE_DEVICES", "PYTORCH_", "HF_HOME", "TMPDIR="),
    *(
        "vllm serve",
        "vllm.entrypoints",
        "sglang.launch_server",
        "sglang serve",
        "llama-server",
        "trtllm-serve",
    ),
    *("docker run", "podman run"),
)
# What stands before a setting that a message only advises.
_ADVISED = re.compile(r"(?i)\b(?:set|use|try|pass|passing|(?:re)?run(?:ning)? with)\s+[`'\"]?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What stands around a start in its log."""

    versions: dict[str, str] = field(default_factory=dict[str, str])  # "torch" -> "2.8.0+cu128"
    gpus: tuple[str, ...] = ()  # "NVIDIA GeForce RTX 5090", once per card
    environment: dict[str, str] = field(default_factory=dict[str, str])

    def version_of(self, engine: str | None) -> str | None:
        """The engine's version, where a report of the environment or an image's tag names it."""
        return self.versions.get(engine or "")


def engine_named(texts: Iterable[str]) -> str | None:
    """The engine that is named most in lines that only mention it."""
    counts = dict.fromkeys((name for name, _ in _ENGINE_SIGNS), 0)
    for text in texts:
        for name, sign in _ENGINE_SIGNS:
            if sign.search(text):
                counts[name] += 1
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] else None


def read_surroundings(lines: Sequence[CaseLine]) -> Surroundings:
    """Versions, cards and variables that any line names; the first one counts."""
    versions: dict[str, str] = {}
    gpus: dict[str, str] = {}
    environment: dict[str, str] = {}
    for line in lines:
        text = line.text
        if len(text) > 4096:
            continue
        for name, pattern in _VERSIONS:
            if name not in versions and (match := pattern.search(text)):
                versions[name] = next(group for group in match.groups() if group is not None)
        if "GPU " in text and (match := _GPU.match(text)):
            for index in match["index"].strip(",").split(","):
                gpus.setdefault(index, match["name"].strip())
        elif "|" in text and (match := _SMI_GPU.search(text)):
            gpus.setdefault(match["index"], match["name"].strip())
        if "=" in text:
            for name, value in _settings(text):
                environment.setdefault(name, redact_value(name, value))
    return Surroundings(versions=versions, gpus=tuple(gpus.values()), environment=environment)


def _settings(text: str) -> Iterator[tuple[str, str]]:
    """Variables that are set on this line, not those that it only advises."""
    for match in _SETTING.finditer(text):
        if not _ADVISED.search(text, 0, match.start("name")) and not match["value"].endswith("."):
            yield match["name"], match["value"].strip("\"'")
