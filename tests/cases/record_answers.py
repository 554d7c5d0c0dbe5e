"""Records what the capable model answers to every check, under another model's name and context.

The cases of `tests/cases` put these answers over machines that are written down, not recorded. Needed again
when a check asks something new: `python tests/cases/record_answers.py`.
"""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

_TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(_TESTS / "hostile"), str(_TESTS.parent / "src")]

import capable_model  # noqa: E402 - its folder had to be made known first

PLACE = _TESTS / "golden" / "recordings"
NAMED = {  # file -> (model id, context in tokens)
    "answers-minimax": ("MiniMaxAI/MiniMax-M2.5", 131_072),
    "answers-qwen": ("nvidia/Qwen3.5-397B-A17B-NVFP4", 262_144),
}


async def recorded(model: str, context: int) -> None:
    """One recording of a default verification, without a host."""
    capable_model.MODEL, capable_model.CONTEXT_TOKENS = model, context
    for name in ("openai_form", "faults", "server"):
        sys.modules.pop(name, None)
    from bringup.flows.verify import VerifyRequest, World, verify  # noqa: PLC0415 - after the constants are set
    from bringup.transport.http_stream import HttpEndpoint, target_of  # noqa: PLC0415 - after the constants are set
    from bringup.transport.recording import save  # noqa: PLC0415 - after the constants are set
    from bringup.transport.sandbox import IsolatedSandbox  # noqa: PLC0415 - after the constants are set
    from bringup.values.deployment import Wanted  # noqa: PLC0415 - after the constants are set
    from server import HostileServer  # noqa: PLC0415 - after the constants are set

    async with HostileServer.with_fault("healthy") as server:
        target = target_of(server.url, api_key=None, ca_file=None, verify_tls=True)
        world = World(runner=None, endpoint=HttpEndpoint(target), sandbox=IsolatedSandbox())
        done = await verify(VerifyRequest(url=target.url, wanted=Wanted(load=True)), world)
    name = next(name for name, (one, _) in NAMED.items() if one == model)
    recording = replace(
        done.recording,
        url="http://127.0.0.1:8000",
        probes={},
        options={**done.recording.options, "load": False},
    )
    save(PLACE / f"{name}.json.gz", recording)
    print(
        name,
        done.report.verdict,
        *(f"{one.id}: {one.summary}" for one in done.report.findings if one.severity != "ok"),
        sep="\n  ",
    )


if __name__ == "__main__":
    for model, context in NAMED.values():
        asyncio.run(recorded(model, context))
