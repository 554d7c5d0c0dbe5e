"""One adapter for each client: the command that puts one load on the server, and the reader of its result.

A client that is new here is one class with `name`, `command` and `read`, and a line in `clients`.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

_ROOT = Path(__file__).resolve().parents[1]
MODEL = "mock-model"
_INPUT_TOKENS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One closed load: `requests` in all, `streams` at a time, `tokens` each."""

    port: int
    streams: int
    requests: int
    tokens: int
    folder: Path  # empty: for what the client writes
    words: "Words"

    @property
    def url(self) -> str:
        """Where the server is."""
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What the client says that it measured. `None`: it does not say."""

    ttft_s: float | None = None
    ttft_p99_s: float | None = None
    itl_s: float | None = None
    itl_p99_s: float | None = None
    requests: int | None = None  # good ones
    output_tokens: int | None = None
    wall_s: float | None = None  # of the load alone
    said: Mapping[str, float] = field(default_factory=dict)  # what it says of its own error


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """A tokenizer in which each word of the mock is one token: a plain folder, and a cache of the hub."""

    folder: Path
    cache: Path
    name: str


class Client(Protocol):
    """A program that puts load on a server and says what it measured."""

    @property
    def name(self) -> str:
        """As in the table."""
        ...

    @property
    def settings(self) -> Mapping[str, str]:
        """Variables of its environment."""
        ...

    def command(self, job: Job) -> list[str]:
        """The command line."""
        ...

    def read(self, job: Job, stdout: str) -> Reported:
        """What it reported. Raises OSError, ValueError or LookupError when it left no result."""
        ...


def environment(client: Client, words: Words) -> dict[str, str]:
    """What all clients see: no network, no colours, the tokenizer's cache."""
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "TMPDIR") if key in os.environ}
    return {
        **kept,
        "HF_HOME": str(words.cache),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "NO_COLOR": "1",
        "PYTHONPATH": str(_ROOT / "src"),
        "PYTHONWARNINGS": "ignore",
        **client.settings,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """The reader in C: the floor. Its figures end with the last bytes of the answer."""

    program: Path
    name: str = "raw C"
    settings: Mapping[str, str] = field(default_factory=dict)

    def command(self, job: Job) -> list[str]:
        return [str(self.program), *(str(n) for n in (job.port, job.streams, job.requests, job.tokens))]

    def read(self, job: Job, stdout: str) -> Reported:
        found = json.loads(stdout)
        tail = 2 * job.requests  # the finish event and the usage event of each answer
        return Reported(
            ttft_s=found["ttft_ms"] / 1e3,
            itl_s=found["itl_ms"] / 1e3,
            requests=job.requests,
            output_tokens=found["events"] - tail,
            wall_s=found["wall_s"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bringup:
    """This project's own."""

    python: str = sys.executable
    name: str = "bringup"
    settings: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()

    def command(self, job: Job) -> list[str]:
        load = ["--concurrency", str(job.streams), "--requests", str(job.requests)]
        lengths = ["--output-tokens", str(job.tokens), "--input-tokens", str(_INPUT_TOKENS)]
        wanted = ["--known-questions", "0", "--json"]  # the mock knows no answers
        return [self.python, "-m", "bringup", "bench", job.url, *load, *lengths, *wanted, *self.options]

    def read(self, job: Job, stdout: str) -> Reported:  # noqa: ARG002 - its result is its output
        found = json.loads(stdout)
        rung = found["rungs"][0]
        instrument = found.get("instrument") or {}
        return Reported(
            **_quantiles("ttft", rung.get("ttft_s")),
            **_quantiles("itl", rung.get("itl_s")),
            requests=rung.get("good", rung["requests"]),
            output_tokens=rung.get("output_tokens"),
            wall_s=rung["wall_s"],
            said={
                key: value
                for key, value in {**instrument, **(rung.get("self_error") or {})}.items()
                if isinstance(value, int | float)
            },
        )


def _quantiles(name: str, found: Mapping[str, float] | None) -> dict[str, float | None]:
    found = found or {}
    return {f"{name}_s": found.get("mean"), f"{name}_p99_s": found.get("p99")}


# SGLang's own entry point imports torch before it comes to the client in Rust, which needs none of it. Loaded
# alone and without what its environment adds to every start (`-S`), the module is at its best, as here.
_LOAD_ALONE = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("_bench", sys.argv[1])
module = module_from_spec(spec)
spec.loader.exec_module(module)
module.run_argv(["sglang-bench", *sys.argv[2:]])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangRust:
    """SGLang's client in Rust."""

    python: str
    name: str = "sglang rust"
    settings: Mapping[str, str] = field(default_factory=dict)

    def command(self, job: Job) -> list[str]:
        module = _newest(Path(self.python).parents[1], "rust_extensions/_bench*.so")
        return [self.python, "-S", "-c", _LOAD_ALONE, str(module), *_sglang_options(job)]

    def read(self, job: Job, stdout: str) -> Reported:  # noqa: ARG002 - it writes a file
        return _serving((job.folder / "result.jsonl").read_text(encoding="utf-8").splitlines()[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Sglang:
    """SGLang's client in Python."""

    python: str
    name: str = "sglang"
    settings: Mapping[str, str] = field(default_factory=dict)

    def command(self, job: Job) -> list[str]:
        return [self.python, "-m", "sglang.benchmark.serving", *_sglang_options(job)]

    def read(self, job: Job, stdout: str) -> Reported:  # noqa: ARG002 - it writes a file
        return _serving((job.folder / "result.jsonl").read_text(encoding="utf-8").splitlines()[-1])


def _sglang_options(job: Job) -> list[str]:
    load = ["--num-prompts", str(job.requests), "--max-concurrency", str(job.streams)]
    lengths = ["--random-input-len", str(_INPUT_TOKENS), "--random-output-len", str(job.tokens)]
    return [
        "--backend", "vllm-chat", "--base-url", job.url,
        "--dataset-name", "random-ids", *lengths, "--random-range-ratio", "1", *load,
        "--model", MODEL, "--tokenizer", str(job.words.folder),
        "--output-file", str(job.folder / "result.jsonl"), "--disable-tqdm",
    ]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Vllm:
    """vLLM's `bench serve`."""

    program: str
    name: str = "vllm"
    settings: Mapping[str, str] = field(default_factory=dict)

    def command(self, job: Job) -> list[str]:
        load = ["--num-prompts", str(job.requests), "--max-concurrency", str(job.streams)]
        lengths = ["--random-input-len", str(_INPUT_TOKENS), "--random-output-len", str(job.tokens)]
        return [
            self.program, "bench", "serve", "--backend", "openai-chat", "--endpoint", "/v1/chat/completions",
            "--base-url", job.url, "--dataset-name", "random", *lengths, *load,
            "--model", MODEL, "--tokenizer", str(job.words.folder), "--ignore-eos", "--disable-tqdm",
            "--percentile-metrics", "ttft,tpot,itl,e2el",
            "--save-result", "--result-dir", str(job.folder), "--result-filename", "result.json",
        ]  # fmt: skip

    def read(self, job: Job, stdout: str) -> Reported:  # noqa: ARG002 - it writes a file
        return _serving((job.folder / "result.json").read_text(encoding="utf-8"))


def _serving(text: str) -> Reported:
    """The result of vLLM's benchmark, and of SGLang's, which grew from it."""
    found = json.loads(text)
    return Reported(
        ttft_s=found["mean_ttft_ms"] / 1e3,
        ttft_p99_s=found["p99_ttft_ms"] / 1e3,
        itl_s=found["mean_itl_ms"] / 1e3,
        itl_p99_s=found["p99_itl_ms"] / 1e3,
        requests=found["completed"],
        output_tokens=found.get("total_output_tokens"),
        wall_s=found["duration"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Aiperf:
    """NVIDIA's AIPerf."""

    program: str
    name: str = "aiperf"
    settings: Mapping[str, str] = field(default_factory=dict)

    def command(self, job: Job) -> list[str]:
        load = ["--concurrency", str(job.streams), "--request-count", str(job.requests)]
        lengths = ["--isl", str(_INPUT_TOKENS), "--osl", str(job.tokens)]
        return [
            self.program, "profile", "--model", MODEL, "--url", job.url, "--endpoint-type", "chat",
            "--streaming", "--tokenizer", job.words.name, *lengths, *load, "--ui", "none",
            "--artifact-dir", str(job.folder), "--use-server-token-count",
            "--no-gpu-telemetry", "--no-server-metrics",
        ]  # fmt: skip

    def read(self, job: Job, stdout: str) -> Reported:  # noqa: ARG002 - it writes a file
        found = json.loads(_newest(job.folder, "profile_export_aiperf.json").read_text(encoding="utf-8"))
        ttft, itl = found["time_to_first_token"], found.get("inter_token_latency") or {}
        return Reported(
            ttft_s=ttft["avg"] / 1e3,
            ttft_p99_s=ttft["p99"] / 1e3,
            itl_s=_milliseconds(itl.get("avg")),
            itl_p99_s=_milliseconds(itl.get("p99")),
            requests=round(found["request_count"]["avg"]),
            output_tokens=_whole((found.get("total_output_tokens") or {}).get("avg")),
            wall_s=(found.get("benchmark_duration") or {}).get("avg"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InferencePerf:
    """Kubernetes' inference-perf. Its random prompts go to `/v1/completions` only."""

    program: str
    name: str = "inference-perf"
    settings: Mapping[str, str] = field(default_factory=dict)

    def command(self, job: Job) -> list[str]:
        length = {"mean": _INPUT_TOKENS, "min": _INPUT_TOKENS, "max": _INPUT_TOKENS, "std_dev": 0}
        answer = {"mean": job.tokens, "min": job.tokens, "max": job.tokens, "std_dev": 0}
        asked = {
            "load": {
                "type": "concurrent",
                "stages": [{"num_requests": job.requests, "concurrency_level": job.streams}],
            },
            "api": {"type": "completion", "streaming": True},
            "server": {"type": "vllm", "model_name": MODEL, "base_url": job.url, "ignore_eos": True},
            "tokenizer": {"pretrained_model_name_or_path": str(job.words.folder)},
            "data": {"type": "random", "input_distribution": length, "output_distribution": answer},
            "report": {"request_lifecycle": {"summary": True, "per_stage": False, "per_request": False}},
            "storage": {"local_storage": {"path": str(job.folder / "reports")}},
        }
        config = job.folder / "config.yml"
        config.write_text(json.dumps(asked), encoding="utf-8")  # JSON is YAML
        return [self.program, "--config_file", str(config)]

    def read(self, job: Job, stdout: str) -> Reported:  # noqa: ARG002 - it writes a file
        found = json.loads(_newest(job.folder, "summary_lifecycle_metrics.json").read_text(encoding="utf-8"))
        good = found["successes"]
        ttft = good["latency"]["time_to_first_token"]
        itl = good["latency"].get("inter_token_latency") or {}
        return Reported(
            ttft_s=ttft["mean"],
            ttft_p99_s=ttft.get("p99"),
            itl_s=itl.get("mean"),
            itl_p99_s=itl.get("p99"),
            requests=good["count"],
            output_tokens=round(good["output_len"]["mean"] * good["count"]),
            wall_s=good["count"] / good["throughput"]["requests_per_sec"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Guidellm:
    """GuideLLM. Without `settings`, its own number of worker processes."""

    program: str
    name: str = "guidellm"
    settings: Mapping[str, str] = field(default_factory=dict)

    def command(self, job: Job) -> list[str]:
        return [
            self.program, "run",
            "--backend", f"kind=openai_http,target={job.url},model={MODEL}",
            "--profile", f"kind=concurrent,streams={job.streams}",
            "--constraint", f"kind=max_requests,count={job.requests}",
            "--tokenizer", f"kind=hf_auto,model={job.words.folder}",
            "--data", f"kind=synthetic_text,prompt_tokens={_INPUT_TOKENS},output_tokens={job.tokens}",
            "--output", f"kind=json,path={job.folder / 'result.json'}", "--disable-console",
        ]  # fmt: skip

    def read(self, job: Job, stdout: str) -> Reported:  # noqa: ARG002 - it writes a file
        found = json.loads((job.folder / "result.json").read_text(encoding="utf-8"))
        metrics = found["benchmarks"][0]["metrics"]
        ttft = metrics["time_to_first_token_ms"]["successful"]
        itl = metrics["inter_token_latency_ms"]["successful"]
        return Reported(
            ttft_s=ttft["mean"] / 1e3,
            ttft_p99_s=ttft["percentiles"]["p99"] / 1e3,
            itl_s=itl["mean"] / 1e3,
            itl_p99_s=itl["percentiles"]["p99"] / 1e3,
            requests=ttft["count"],
            output_tokens=round(metrics["output_token_count"]["successful"]["total_sum"]),
            wall_s=found["benchmarks"][0]["duration"],
        )


def _newest(folder: Path, name: str) -> Path:
    found = sorted(folder.rglob(name), key=lambda path: path.stat().st_mtime)
    if not found:
        raise FileNotFoundError(name)
    return found[-1]


def _milliseconds(value: float | None) -> float | None:
    return None if value is None else value / 1e3


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
