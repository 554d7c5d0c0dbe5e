"""What any server of the OpenAI interface says about itself: its models. The least sure of all.

Source: OpenAI API reference, models endpoint.
"""

from collections.abc import Mapping

from bringup.parse.models_list import is_models_list, read_models
from bringup.parse.probe import body_at, is_healthy, samples_at
from bringup.parse.prometheus import totals
from bringup.values.engine import EngineStatus
from bringup.values.exchange import Answer

PROBES = ("/v1/models",)
HEALTH_MEANING = "200: the server lists its models. It says nothing about being able to generate"

METRICS: dict[str, tuple[str, ...]] = {
    "requests_finished_total": ("mock_requests_total",),  # of the mock server that the benchmarks run against
}
_SURE = 0.2  # every other engine's single sign weighs more
_ONLY_A_KEY = 0.1  # it wants a key for the models: some gateway of this interface, perhaps


def identify(answers: Mapping[str, Answer]) -> tuple[float, EngineStatus] | None:
    """How sure we are that it speaks the OpenAI interface; None when it lists no models and wants no key."""
    body = body_at(answers, "/v1/models")
    models = answers.get("/v1/models")
    metrics = totals(samples_at(answers, "/metrics", "mock_"), METRICS)
    if metrics and models is None:  # a look at the counters alone
        sure, evidence = _ONLY_A_KEY, "/metrics counts requests"
    elif is_models_list(body):
        sure, evidence = _SURE, "/v1/models lists models, and nothing tells which engine serves them"
    elif models is not None and models.status in (401, 403):
        sure, evidence = _ONLY_A_KEY, f"/v1/models answers {models.status}: the models need a key"
    else:
        return None
    return sure, EngineStatus(
        engine="unknown",
        evidence=(evidence,),
        models=read_models(body),
        is_healthy=is_healthy(answers, "/v1/models"),
        health_meaning=HEALTH_MEANING,
        metrics=metrics,
    )
