"""An endpoint whose answers come without secrets: no check, report or recording ever sees one.

Judging what is also recorded keeps a replay equal to the run it replays.
"""

from collections.abc import Collection

from bringup.parse.redact import answer_spans, secret_spans
from bringup.transport import Endpoint
from bringup.transport.scrub import scrub_answer
from bringup.values.exchange import Answer, Ask


class ScrubbedEndpoint:
    """Passes asks on and takes the secrets out of what comes back."""

    def __init__(self, endpoint: Endpoint, secrets: Collection[str] = ()) -> None:
        self._endpoint = endpoint
        self._secrets = tuple(secret for secret in secrets if secret)

    async def send(self, ask: Ask) -> Answer:
        """The answer without secrets. A key that is a path is a probe of the server."""
        answer = await self._endpoint.send(ask)
        return scrub_answer(answer, self._secrets, secret_spans if ask.key.startswith("/") else answer_spans)

    async def close(self) -> None:
        """Close the endpoint."""
        await self._endpoint.close()
