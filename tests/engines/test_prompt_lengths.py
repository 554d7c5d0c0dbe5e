"""Prompts of the load are as long as asked by the engine's own count; its known questions can be judged."""

import http.client
import importlib.util
import json
import sys
from itertools import islice
from pathlib import Path

import pytest

from bringup.values.bench import RequestRecord
from bringup.values.exchange import Answer, Ask
from bringup.workload.calibration import calibration, calibration_asks, read_count
from bringup.workload.known_questions import Verdict, WithQuestions, judge_record, question_tails
from bringup.workload.lengths import fixed_length, read_lengths
from bringup.workload.request_body import BodyShape
from bringup.workload.synthetic import Synthetic
from running_engine import running

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp is not installed"),
]
NAME = "smollm2-135m-instruct"


@pytest.fixture(scope="module")
def engine(weights, log_of):
    source = Path(__file__).parents[2] / "src"

    def argv(port):
        options = ("--model", str(weights), "--alias", NAME, "--port", str(port), "--threads", "2")
        return (sys.executable, "-m", "bringup.transport.demo_engine", *options)

    with running(
        argv,
        log=log_of("demo-lengths"),
        engine="llama_cpp",
        model=NAME,
        environment={"OMP_WAIT_POLICY": "passive", "PYTHONPATH": str(source)},
        limit_s=120.0,
    ) as started:
        yield started


def asked(engine, ask):
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=300)
    connection.request(ask.method, ask.path, ask.body.encode(), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    found = Answer(key=ask.key, status=answer.status, body=answer.read().decode())
    connection.close()
    return found


def calibrated(engine, shape, name=None):
    counts = {}
    while asks := calibration_asks(shape, counts, question_tails(), engine=name):
        counts |= {ask.key: read_count(asked(engine, ask)) for ask in asks}
    return calibration(counts)


def sent(engine, request, shape):
    """The answer to a request of the load, in one piece."""
    body = json.loads(request.body) | {"stream": False}
    del body["stream_options"]
    path = "/v1/chat/completions" if shape.is_chat else "/v1/completions"
    return asked(engine, Ask(key=str(request.index), path=path, body=json.dumps(body)))


@pytest.mark.parametrize("is_chat", [True, False])
def test_a_prompt_is_as_long_as_asked_by_the_engines_own_count(engine, is_chat):
    shape = BodyShape(model=NAME, is_chat=is_chat)
    found = calibrated(engine, shape)
    assert found.is_exact
    least = found.overhead + 1
    for tokens in (max(16, least), max(33, least), 100, 257, 1500):
        for share in (0.0, 0.5):
            lengths, one = fixed_length(tokens), fixed_length(1)
            workload = Synthetic(
                shape=shape, input_lengths=lengths, output_lengths=one, prefix_share=share, calibration=found
            )
            (request,) = islice(workload.requests(7, 8), 1)
            assert read_count(sent(engine, request, shape)) == tokens == request.input_tokens


def test_its_own_tokenizer_gives_the_same_calibration(engine):
    shape = BodyShape(model=NAME, is_chat=False)
    assert calibrated(engine, shape, "llama.cpp") == calibrated(engine, shape)


def test_known_questions_are_as_long_as_asked_and_a_weak_model_answers_most(engine):
    shape = BodyShape(model=NAME, ignores_end=True)
    found = calibrated(engine, shape)
    lengths = read_lengths("60:160", option="--input-tokens")
    plain = Synthetic(shape=shape, input_lengths=lengths, output_lengths=fixed_length(24), calibration=found)
    workload = WithQuestions(workload=plain, padding=plain, share=1.0)
    verdicts = []
    for request in islice(workload.requests(0, 1), 14):
        value = json.loads(sent(engine, request, shape).body)
        assert value["usage"]["prompt_tokens"] == request.input_tokens
        assert value["usage"]["completion_tokens"] == 24  # forced on after the answer
        record = RequestRecord(
            index=request.index,
            sent=0,
            question=request.question,
            text=value["choices"][0]["message"]["content"],
            output_tokens=24,
            events=24,
        )
        judged = judge_record(record)
        assert judged is not None
        verdicts.append(judged.verdict)
    assert verdicts.count(Verdict.RIGHT) >= 11
    assert set(verdicts) <= {Verdict.RIGHT, Verdict.WRONG}
