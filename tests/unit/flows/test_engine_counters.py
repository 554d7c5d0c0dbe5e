from typing import cast

import pytest

from bringup import registry
from bringup.engines import Engine
from bringup.flows.engine_counters import counter_paths, counters_only, engine_moment
from bringup.values.exchange import Answer

ENGINES = cast("dict[str, Engine]", registry.load("bringup.engines", "ENGINE"))
VLLM = """
# HELP vllm:generation_tokens_total Number of generation tokens processed.
vllm:num_requests_running{engine="0"} 3.0
vllm:num_requests_running{engine="1"} 2.0
vllm:num_requests_waiting{engine="0"} 7.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.5
vllm:prefix_cache_queries_total{engine="0"} 4310.0
vllm:prefix_cache_hits_total{engine="0"} 431.0
vllm:prompt_tokens_total{engine="0"} 4310.0
vllm:generation_tokens_total{engine="0"} 470.0
vllm:generation_tokens_total{engine="1"} 2.0
vllm:generation_tokens_created{engine="0"} 1.79e+09
vllm:num_preemptions_total{engine="0"} 1.0
vllm:request_success_total{engine="0",finished_reason="stop"} 5.0
vllm:request_success_total{engine="0",finished_reason="length"} 7.0
vllm:request_success_total{engine="0",finished_reason="abort"} 1.0
vllm:request_generation_tokens_sum{engine="0"} 999.0
vllm:request_generation_tokens_bucket{engine="0",le="1.0"} 999.0
"""
SGLANG = """
sglang:num_running_reqs{tp_rank="0"} 4.0
sglang:num_running_reqs{tp_rank="1"} 4.0
sglang:num_queue_reqs{tp_rank="0"} 0.0
sglang:token_usage{tp_rank="0"} 0.125
sglang:prompt_tokens_total{is_streaming="false"} 227.0
sglang:prompt_tokens_total{is_streaming="true"} 70.0
sglang:generation_tokens_total{is_streaming="false"} 122.0
sglang:cached_tokens_total{cache_source="device"} 189.0
sglang:num_requests_total{is_streaming="false"} 8.0
sglang:num_requests_total{is_streaming="true"} 2.0
"""
LLAMA_CPP = """
llamacpp:prompt_tokens_total 208
llamacpp:prompt_tokens_cached_total 395
llamacpp:tokens_predicted_total 703
llamacpp:requests_processing 1
llamacpp:requests_deferred 2
"""
TENSORRT_LLM = """
trtllm_num_active_requests{model_name="m"} 6.0
trtllm_kv_cache_utilization{model_name="m"} 0.75
trtllm_request_success_total{model_name="m",finished_reason="stop"} 10.0
trtllm_request_success_total{model_name="m",finished_reason="length"} 5.0
trtllm_prompt_tokens_total{model_name="m"} 1000.0
trtllm_prompt_cached_tokens_total{model_name="m"} 250.0
trtllm_generation_tokens_total{model_name="m"} 900.0
"""
TOLD = ("requests", "input_tokens", "output_tokens", "cache_queries", "cache_hits")


def moment_of(name, page):
    path = counter_paths(ENGINES[name])[0]
    answer = Answer(key=path, status=200, body=counters_only(page), total_s=0.02)
    return engine_moment(ENGINES[name], {path: answer}, at=1.0)


@pytest.mark.parametrize(
    ("name", "page", "told", "gauges"),
    [
        ("vllm", VLLM, (13.0, 4310.0, 472.0, 4310.0, 431.0), (5.0, 7.0, 0.5)),
        ("sglang", SGLANG, (10.0, 297.0, 122.0, 297.0, 189.0), (4.0, 0.0, 0.125)),
        ("llama_cpp", LLAMA_CPP, (None, 603.0, 703.0, 603.0, 395.0), (1.0, 2.0, None)),
        ("tensorrt_llm", TENSORRT_LLM, (15.0, 1000.0, 900.0, 1000.0, 250.0), (6.0, None, 0.75)),
        ("openai_compatible", "mock_requests_total 7\n", (7.0, None, None, None, None), (None, None, None)),
    ],
)
def test_every_engine_tells_its_counters_by_the_same_names(name, page, told, gauges):
    moment = moment_of(name, page)
    assert tuple(getattr(moment, field) for field in TOLD) == told
    assert (moment.running, moment.waiting, moment.kv_used_share) == gauges
    assert (moment.at, moment.took) == (1.0, 0.02)


def test_old_llama_cpp_counts_only_a_part_of_what_came_in():
    moment = moment_of("llama_cpp", LLAMA_CPP.replace("prompt_tokens_cached_total", "something_else"))
    assert (moment.input_tokens, moment.cache_hits, moment.output_tokens) == (None, None, 703.0)


def test_another_servers_page_has_no_counters_of_this_engine():
    for name in ENGINES:
        if counter_paths(ENGINES[name]):
            assert moment_of(name, "http_requests_total 7\n") is None


def test_a_page_is_read_without_its_histograms():
    lean = counters_only(VLLM)
    assert "_sum" not in lean
    assert "_bucket" not in lean
    assert "_created" not in lean
    assert lean.count("\n") == 15
