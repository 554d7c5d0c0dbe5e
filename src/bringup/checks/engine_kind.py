"""The engine that answers is the one whose command line was given.

A port that another server took first answers in its place, and every flag of the command is then believed of
a server that never saw it. Source: the command lines and endpoints that `bringup.engines` reads.
"""

from bringup.checks import Check, Replies
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Judgement, Severity


def judge(deployment: Deployment, _replies: Replies) -> Judgement:
    """Nothing without a command line or an identified engine; else whether they are of one kind."""
    spec, engine = deployment.spec, deployment.engine
    if spec is None or engine.engine == "unknown":
        return Judgement(findings=())
    expected = f"{spec.engine}, as its command line says"
    if spec.engine == engine.engine:
        finding = Finding(
            id="engine_kind",
            severity=Severity.OK,
            summary=f"{engine.display_name} answers, as its command line says",
            expected=expected,
        )
        return Judgement(findings=(finding,))
    finding = Finding(
        id="engine_kind",
        severity=Severity.FAILURE,
        summary=f"{engine.display_name} answers, where the command line starts another engine",
        expected=expected,
        explanation="another server holds the port: what was measured here is not about the wanted engine",
        action="see who listens (`ss -ltnp` on the machine), then stop it or choose another port",
        evidence=tuple(Evidence(source="endpoint", text=text) for text in engine.evidence[:3]),
    )
    return Judgement(findings=(finding,))


CHECK = Check(
    title="is the engine that was started",
    section="function",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
)
