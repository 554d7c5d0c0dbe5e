import json

import pytest

from bringup.checks.cancel import CHECK
from bringup.values.exchange import Answer, Problem

METRIC = {
    "vllm": 'vllm:num_requests_running{{engine="0"}} {}.0\n',
    "sglang": 'sglang:num_running_reqs{{tp_rank="0"}} {}.0\n',
    "llama_cpp": "llamacpp:requests_processing {}\n",
}


class Engine:
    """Answers as an engine whose running requests are the next of `counts` at every look."""

    def __init__(self, make, counts, *, engine="vllm", slots=True, dropped=None, pace=None, aborted=()):
        self.make, self.counts, self.engine, self.slots = make, list(counts), engine, slots
        self.dropped = dropped or make.stream(
            "dropped", ["a "] * 4, finish=None, tokens=None, done=False, problem=Problem.ABORTED
        )
        self.pace = pace
        self.aborted = list(aborted)

    def __call__(self, ask):
        if ask.key == "dropped":
            return self.dropped
        if ask.key.startswith("pace"):
            return self.pace or self.make.whole(ask.key, "1 2 3")
        if ask.path == "/slots":
            if not self.slots:
                return self.make.error(ask.key, 501, "off")
            rows = [{"id": place, "is_processing": place < self.counts[0]} for place in range(4)]
            return Answer(key=ask.key, status=200, body=json.dumps(rows))
        if not self.counts:
            return self.make.error(ask.key, 404, "no metrics")
        body = METRIC[self.engine].format(self.counts.pop(0))
        if self.aborted:
            count = self.aborted.pop(0)
            body += "" if count is None else f"sglang:num_aborted_requests_total {count}.0\n"
        return Answer(key=ask.key, status=200, body=body)


def run(make, engine, **options):
    return make.run(CHECK, make.deployment(engine=engine.engine, **options), engine)


@pytest.mark.parametrize("engine", ["vllm", "llama_cpp"])
def test_freed_at_once(make, engine):
    result = run(make, Engine(make, [0, 0], engine=engine))
    assert make.found(result.judgement) == {"cancel": "ok"}
    assert result.rounds == 3


@pytest.mark.parametrize("aborted", [(3, 4), (3, 3, 3, 4), (None, 1)])
def test_sglang_counts_the_hang_up(make, aborted):
    counts = [0] * len(aborted)
    result = run(make, Engine(make, counts, engine="sglang", aborted=aborted))
    assert make.found(result.judgement) == {"cancel": "ok"}
    assert "aborted" in result.judgement.findings[0].summary


def test_a_late_gauge_is_not_believed_at_once(make):
    freed = run(make, Engine(make, [0, 0, 0, 1, 1, 0], engine="sglang"))
    assert make.found(freed.judgement) == {"cancel": "ok"}
    kept = run(make, Engine(make, [0, 0, 0, 1, 1, 1], engine="sglang", aborted=[3] * 6))
    assert make.found(kept.judgement) == {"cancel": "warning"}
    cut_short = run(make, Engine(make, [0, 0], engine="sglang", pace=make.broken("", Problem.NOT_ASKED)))
    assert make.found(cut_short.judgement) == {"cancel.after": "unknown"}


@pytest.mark.parametrize("slots", [True, False])
def test_freed_later(make, slots):
    result = run(make, Engine(make, [0, 1, 1, 0], engine="llama_cpp", slots=slots))
    assert make.found(result.judgement) == {"cancel": "ok"}
    assert "look 3" in result.judgement.findings[0].summary


def test_never_freed(make):
    result = run(make, Engine(make, [0, 1, 1, 1, 1, 1]))
    assert make.found(result.judgement) == {"cancel": "warning"}
    assert result.rounds <= 11


def test_traffic_of_others(make):
    assert make.found(run(make, Engine(make, [3, 4, 4, 4, 4, 4])).judgement) == {"cancel": "unknown"}
    assert make.found(run(make, Engine(make, [3, 4, 3])).judgement) == {"cancel": "ok"}


def test_an_engine_that_shows_nothing(make):
    prompt = run(make, Engine(make, []))
    assert make.found(prompt.judgement) == {"cancel": "note"}
    slow = Answer(key="pace 1", status=200, body=make.whole("x", "1 2").body, total_s=40.0)
    assert make.found(run(make, Engine(make, [], pace=slow)).judgement) == {"cancel": "unknown"}


def test_metrics_that_vanish(make):
    assert make.found(run(make, Engine(make, [0])).judgement) == {"cancel": "unknown"}


def test_ended_before_we_hung_up(make):
    result = run(make, Engine(make, [0, 0], dropped=make.stream("dropped", ["Hi"])))
    assert make.found(result.judgement) == {"cancel": "note"}


def test_engine_dies(make):
    after = run(make, Engine(make, [0, 1, 1], pace=make.error("pace 1", 500, "EngineCore died")))
    assert make.found(after.judgement) == {"cancel.after": "failure"}
    before = run(make, Engine(make, [0], dropped=make.broken("dropped", Problem.REFUSED)))
    assert make.found(before.judgement) == {"cancel": "failure"}


def test_not_asked(make):
    assert make.found(make.judge(CHECK, make.deployment())) == {"cancel": "unknown"}


def test_hangs_up_early_in_a_long_answer(make):
    asked = {ask.key: ask for ask in run(make, Engine(make, [0, 0])).asked}
    dropped = asked["dropped"]
    assert dropped.abort_after_events is not None
    assert json.loads(dropped.body)["max_tokens"] > 50 * dropped.abort_after_events
