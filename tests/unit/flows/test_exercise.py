import asyncio
from dataclasses import dataclass, field, replace

import pytest

from bringup import registry
from bringup.checks import MAX_ROUNDS, Check
from bringup.flows.exercise import Exercise
from bringup.flows.queue import at_work
from bringup.parse.answer_fault import Fault, reply_or_fault
from bringup.values.deployment import Deployment
from bringup.values.engine import EngineStatus, KvCapacity, ServedModel
from bringup.values.exchange import Answer, Ask, Problem, Program, ProgramResult
from bringup.values.finding import Judgement, Severity


@dataclass
class ScriptedEndpoint:
    """Answers 200, unless `script` says otherwise for a key; remembers order and width."""

    script: dict[str, Answer] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    running: int = 0
    widest: int = 0
    limits: list[float] = field(default_factory=list)

    async def send(self, ask):
        self.order.append(ask.key)
        self.limits.append(ask.time_limit_s)
        self.running += 1
        self.widest = max(self.widest, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        return replace(self.script.get(ask.key, Answer(key="", status=200, first_byte_s=0.1)), key=ask.key)

    async def close(self):
        pass


class RefusingSandbox:
    async def run(self, program):
        return ProgramResult(key=program.key, unavailable="not here")


def deployment(slots=2):
    return Deployment(
        url="http://x:1",
        engine=EngineStatus(engine="vllm", kv=KvCapacity(slots=slots)),
        model=ServedModel(id="m"),
    )


def check(*batches, phase="shared"):
    """A check that asks one batch of keys after the other."""

    def asks(_deployment, replies):
        done = len(replies.answers) + len(replies.programs)
        for batch in batches:
            if done < len(batch):
                return tuple(
                    Program(key=k, source="", calls=()) if k[0] == "!" else Ask(key=k) for k in batch
                )
            done -= len(batch)
        return ()

    return Check(title="t", phase=phase, asks=asks, judge=lambda _d, _r: Judgement(findings=()))


def run(checks, endpoint, *, budget_s=100.0, slots=2, gives_up=True):
    steps = []
    exercise = Exercise(
        deployment(slots),
        endpoint,
        RefusingSandbox(),
        budget_s=budget_s,
        on_step=steps.append,
        gives_up=gives_up,
    )
    return asyncio.run(exercise.run(checks)), steps


def test_phases_follow_each_other_and_keys_stay_the_checks_own():
    endpoint = ScriptedEndpoint()
    checks = {"h": check(["x"], phase="hostile"), "e": check(["x"], phase="exclusive"), "s": check(["x"])}
    observed, steps = run(checks, endpoint)
    assert endpoint.order == ["s/x", "e/x", "h/x"]
    assert observed.answers["h"]["x"].key == "x"
    assert [(step.done, step.total) for step in steps] == [(0, 3), (1, 3), (2, 3)]


def test_shared_checks_never_outnumber_the_engines_places():
    endpoint = ScriptedEndpoint()
    run({f"c{i}": check(["x"]) for i in range(9)}, endpoint, slots=2)
    assert endpoint.widest == 2


def test_a_batch_is_sent_at_once_and_the_next_sees_its_answers():
    endpoint = ScriptedEndpoint()
    observed, _ = run({"c": check(["a", "b"], ["c"])}, endpoint)
    assert endpoint.order[2] == "c/c"
    assert set(observed.answers["c"]) == {"a", "b", "c"}


def test_programs_go_to_the_sandbox():
    observed, _ = run({"c": check(["!p"])}, ScriptedEndpoint())
    assert observed.programs["c"]["!p"].unavailable == "not here"


def test_a_check_that_never_stops_asking_is_stopped():
    endless = Check(
        title="t",
        asks=lambda _d, replies: (Ask(key=str(len(replies.answers))),),
        judge=lambda _d, _r: Judgement(findings=()),
    )
    endpoint = ScriptedEndpoint()
    run({"c": endless}, endpoint)
    assert len(endpoint.order) == MAX_ROUNDS


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (Answer(key="", problem=Problem.REFUSED, detail="Connection refused"), "stopped listening"),
        (Answer(key="", problem=Problem.TIME_LIMIT), "hangs"),
    ],
)
def test_nothing_more_is_asked_of_an_endpoint_that_is_gone(bad, words):
    endpoint = ScriptedEndpoint(script={"a/1": bad, "a/2": bad})
    observed, _ = run(
        {"a": check(["1"], ["2"], phase="exclusive"), "b": check(["1"], phase="hostile")}, endpoint
    )
    last = observed.answers["b"]["1"]
    assert last.problem is Problem.NOT_ASKED
    assert words in last.detail
    assert "b/1" not in endpoint.order


def test_one_slow_answer_alone_does_not_end_the_run():
    endpoint = ScriptedEndpoint(script={"a/1": Answer(key="", problem=Problem.TIME_LIMIT)})
    observed, _ = run({"a": check(["1"], ["2"], ["3"])}, endpoint)
    assert observed.answers["a"]["3"].status == 200


def test_a_used_up_budget_is_said_and_no_ask_outlives_it():
    endpoint = ScriptedEndpoint()
    observed, _ = run({"a": check(["1"])}, endpoint, budget_s=0.0)
    assert observed.answers["a"]["1"].problem is Problem.NOT_ASKED
    assert "used up" in observed.answers["a"]["1"].detail
    endpoint = ScriptedEndpoint()
    run({"a": check(["1"])}, endpoint, budget_s=7.0)
    assert endpoint.limits[0] <= 7.0


def test_a_recording_is_asked_to_its_end_whatever_it_says():
    silent = Answer(key="", problem=Problem.TIME_LIMIT)
    endpoint = ScriptedEndpoint(script={f"a/{key}": silent for key in "123"})
    observed, _ = run({"a": check(["1", "2", "3"], ["4"])}, endpoint, budget_s=0.0, gives_up=False)
    assert [answer.problem for answer in observed.answers["a"].values()] == [Problem.TIME_LIMIT] * 3 + [None]


@pytest.mark.parametrize(
    ("seen", "problem", "severity"),
    [
        ((Problem.QUEUED, "8 run and 19 wait"), Problem.QUEUED, Severity.UNKNOWN),
        ((Problem.SLOW, "4 run and 0 wait"), Problem.SLOW, Severity.WARNING),
        (None, Problem.TIME_LIMIT, Severity.FAILURE),
    ],
)
def test_a_request_that_an_engine_at_work_lets_wait_is_not_called_hung(seen, problem, severity):
    silent = Answer(key="", problem=Problem.TIME_LIMIT)
    endpoint = ScriptedEndpoint(script={"a/1": silent, "a/2": silent})
    exercise = Exercise(deployment(), endpoint, RefusingSandbox(), budget_s=100.0, on_step=lambda _: None)

    async def at_work_now():
        return seen

    exercise.at_work = at_work_now
    answers = asyncio.run(exercise.run({"a": check(["1"], ["2"], ["3"])})).answers["a"]
    assert answers["1"].problem is problem
    assert isinstance(fault := reply_or_fault(answers["1"]), Fault)
    assert fault.severity is severity
    assert ("hangs" in answers["3"].detail) is (seen is None)


@pytest.mark.parametrize(
    ("looks", "problem"),
    [
        (((8, 19, 100.0), (8, 19, 140.0)), Problem.QUEUED),
        (((4, 0, 100.0), (4, 0, 140.0)), Problem.SLOW),
        (((8, 19, 100.0), (8, 20, 100.0)), None),  # hung: only the queue grows
        (((0, 0, 100.0), (0, 0, 140.0)), None),  # idle, and yet no answer
    ],
)
def test_what_an_engine_does_while_it_lets_wait(looks, problem):
    script = {
        f"queue/{number}": Answer(
            key="",
            status=200,
            body=f"vllm:num_requests_running {runs}.0\nvllm:num_requests_waiting {waits}.0\n"
            f"vllm:generation_tokens_total {tokens}\n",
        )
        for number, (runs, waits, tokens) in enumerate(looks)
    }
    engine = registry.load("bringup.engines", "ENGINE")["vllm"]
    found = asyncio.run(at_work(engine, ScriptedEndpoint(script=script), apart_s=0.0))
    assert (found and found[0]) is problem
