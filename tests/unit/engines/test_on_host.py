"""Host memory of an engine on a processor: the sums that were measured, and what they follow."""

import pytest

from bringup.engines.llama_cpp.on_host import on_host as on_llama
from bringup.engines.sglang.on_host import on_host as on_sglang
from bringup.engines.vllm.on_host import on_host as on_vllm
from bringup.parse.hf_config import read_config
from bringup.units import GIB, in_mib, mib
from bringup.values.engine import EngineSpec, EngineStatus, KvCapacity, ServedModel
from bringup.values.host import EngineProcess, ModelFiles
from bringup.values.plan import HostTask

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 30,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
MODEL = read_config(CONFIG, name="smollm2", source="test")
TOKEN = 23_040  # bytes in the cache: 2 x 30 layers x 3 heads x 64 x 2 B
SAFETENSORS = ModelFiles(
    folder="/m", sizes=(("model-1.safetensors", 136_288_152), ("model-2.safetensors", 132_774_552))
)
GGUF = ModelFiles(folder="/m", sizes=(("smol.gguf", 98_354_880),))


def task(engine: str, **more: object) -> HostTask:
    status = {"kv": more.pop("kv", KvCapacity()), "metrics": more.pop("metrics", {})}
    models = (ServedModel(id="m", context_tokens=2048),)
    environment = more.pop("environment", {})
    flags = more.pop("flags", None)
    spec = EngineSpec(engine=engine, argv=("x",), flags=flags) if flags is not None else None
    if spec is not None and "--tensor-parallel-size" in flags:
        spec = EngineSpec(engine=engine, argv=("x",), flags=flags, tensor_parallel_size=2)
    status["flags"] = more.pop("told", {})
    return HostTask(
        engine=EngineStatus(engine=engine, version=more.pop("version", None), models=models, **status),
        process=EngineProcess(pid=1, environment=environment),
        spec=spec,
        model=more.pop("model", MODEL),
        **more,
    )


def sizes(plan) -> dict[str, int]:
    return {line.name: line.bytes for line in plan.ledger}


class TestVllm:
    def test_the_measured_sum_from_blocks(self) -> None:
        kv = KvCapacity(tokens=46_592, block_tokens=128, blocks=364, dtype="auto")
        plan = on_vllm(task("vllm", version="0.32.0", kv=kv, files=SAFETENSORS, flags={}))
        assert sizes(plan)["kv_pool"] == 46_592 * TOKEN
        assert sizes(plan)["weights"] == 136_288_152 + 132_774_552
        assert in_mib(plan.bytes) == pytest.approx(3087, rel=0.02)  # MiB, measured after the start

    def test_without_metrics_the_environment_gives_the_pool(self) -> None:
        environment = {"VLLM_CPU_KVCACHE_SPACE": "2"}
        plan = on_vllm(task("vllm", environment=environment, files=SAFETENSORS, flags={}))
        blocks = 2 * GIB // (128 * TOKEN)
        assert sizes(plan)["kv_pool"] == blocks * 128 * TOKEN

    def test_every_worker_takes_the_space(self) -> None:
        model = read_config(
            {**CONFIG, "num_key_value_heads": 4, "num_attention_heads": 8}, name="m", source=""
        )
        kv = KvCapacity(tokens=12_800, block_tokens=128, blocks=100)
        both = {"model": model, "kv": kv, "files": SAFETENSORS}
        one = on_vllm(task("vllm", flags={}, **both))
        two = on_vllm(task("vllm", flags={"--tensor-parallel-size": "2"}, **both))
        assert sizes(two)["kv_pool"] == sizes(one)["kv_pool"]  # half the heads, twice
        assert sizes(two)["program"] > sizes(one)["program"]

    def test_wider_numbers_than_stored(self) -> None:
        kv = KvCapacity(tokens=12_800, block_tokens=128, blocks=100)
        plan = on_vllm(task("vllm", kv=kv, files=SAFETENSORS, flags={"--dtype": "float32"}))
        assert sizes(plan)["weights"] == 2 * (136_288_152 + 132_774_552)

    @pytest.mark.parametrize("lacking", ["files", "model", "kv"])
    def test_nothing_is_made_up(self, lacking: str) -> None:
        known = {
            "files": SAFETENSORS,
            "model": MODEL,
            "kv": KvCapacity(tokens=12_800, block_tokens=128, blocks=100),
        }
        known[lacking] = KvCapacity() if lacking == "kv" else None
        assert on_vllm(task("vllm", flags={}, **known)) is None


class TestSglang:
    def test_the_measured_sum(self) -> None:
        kv = KvCapacity(tokens=8192, block_tokens=1)
        plan = on_sglang(task("sglang", kv=kv, files=SAFETENSORS, flags={"--device": "cpu"}))
        assert sizes(plan)["kv_pool"] == 8193 * TOKEN  # a page more, for padding
        assert in_mib(plan.bytes) == pytest.approx(2407, rel=0.03)  # beside another engine

    def test_without_its_tokens_nothing_is_said(self) -> None:
        assert on_sglang(task("sglang", files=SAFETENSORS)) is None


class TestLlamaCpp:
    SLOTS = KvCapacity(slots=4)
    TOLD = {"model_path": "/m/smol.gguf"}  # noqa: RUF012 - never changed

    def test_the_measured_sum_when_ready(self) -> None:
        metrics = {"prompt_tokens_total": 0.0, "output_tokens_total": 0.0}
        ready = task(
            "llama_cpp", kv=self.SLOTS, told=self.TOLD, files=GGUF, metrics=metrics, resident=mib(320)
        )
        assert in_mib(on_llama(ready).bytes) == pytest.approx(320, rel=0.02)

    def test_prompts_that_lost_their_slot_are_kept(self) -> None:
        metrics = {
            "prompt_tokens_total": 10_162.0,
            "output_tokens_total": 2031.0,
            "slot_tokens": 4134.0,
        }
        used = task(
            "llama_cpp", kv=self.SLOTS, told=self.TOLD, files=GGUF, metrics=metrics, resident=mib(574)
        )
        plan = on_llama(used)
        kept = plan.line("prompt_cache")
        assert (kept.low, kept.high) == (8059 * TOKEN, 12_193 * TOKEN)
        assert in_mib(plan.bytes) == pytest.approx(574, rel=0.05)

    def test_the_limit_of_kept_prompts_is_a_flag(self) -> None:
        metrics = {"prompt_tokens_total": 1e6}
        flags = {"--cache-ram": "100", "--ctx-size": "8192", "--parallel": "4"}
        plan = on_llama(
            task("llama_cpp", kv=self.SLOTS, files=GGUF, told=self.TOLD, metrics=metrics, flags=flags)
        )
        assert plan.line("prompt_cache").bytes == mib(100)
        assert plan.growth_bytes == 0

    @pytest.mark.parametrize(("held", "cells"), [(320, 8192), (190, 2048)])
    def test_whether_slots_share_a_cache_is_seen_from_what_is_held(self, held: int, cells: int) -> None:
        seen = task("llama_cpp", kv=self.SLOTS, files=GGUF, told=self.TOLD, resident=mib(held))
        assert on_llama(seen).tokens == cells

    def test_a_command_line_settles_it(self) -> None:
        flags = {"--ctx-size": "8192", "--parallel": "4", "--cache-type-k": "q8_0", "--cache-type-v": "q8_0"}
        plan = on_llama(task("llama_cpp", kv=self.SLOTS, files=GGUF, told=self.TOLD, flags=flags))
        assert sizes(plan)["kv_pool"] == 8192 * TOKEN * 34 // 64

    def test_of_a_file_that_is_not_seen_the_endpoint_tells_the_size(self) -> None:
        plan = on_llama(task("llama_cpp", kv=self.SLOTS, weights_bytes=96_576_768))
        assert sizes(plan)["weights"] == 96_576_768

    def test_a_file_in_parts_counts_only_when_all_are_seen(self) -> None:
        told = {"model_path": "/m/big-00001-of-00002.gguf"}
        parts = (("big-00001-of-00002.gguf", 1000), ("big-00002-of-00002.gguf", 500), ("other.gguf", 7))
        whole = task("llama_cpp", kv=self.SLOTS, told=told, files=ModelFiles(folder="/m", sizes=parts))
        assert sizes(on_llama(whole))["weights"] == 1500
        one = task("llama_cpp", kv=self.SLOTS, told=told, files=ModelFiles(folder="/m", sizes=parts[:1]))
        assert on_llama(one) is None
