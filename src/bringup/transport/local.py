"""Asks this machine, the same way as any other: one script to `sh`."""

from collections.abc import Collection, Mapping, Sequence

from bringup.errors import HostError
from bringup.transport.channel import Patience, ask_through
from bringup.values.host import CommandResult, Question


class LocalRunner:
    """Asks the machine that bringup runs on."""

    def __init__(
        self,
        *,
        shell: Sequence[str] = ("sh",),
        patience: Patience | None = None,
        secrets: Collection[str] = (),
    ) -> None:
        self._shell = tuple(shell)
        self._patience = patience or Patience()
        self._secrets = tuple(secrets)

    @property
    def host(self) -> str:
        """Always "local"."""
        return "local"

    async def ask(self, questions: Sequence[Question]) -> Mapping[str, CommandResult]:
        """One result per question, by key, and the host's clock as `transport.clock`.

        Raises:
            HostError: there is no shell to ask through.
        """
        try:
            asked = await ask_through(self._shell, questions, patience=self._patience, secrets=self._secrets)
        except OSError as error:
            raise HostError(
                f"`{self._shell[0]}` cannot be run on this machine: {error.strerror}",
                hint="a POSIX shell on the PATH is needed to ask the system about itself",
            ) from None
        if not asked.is_begun:
            raise HostError(
                f"`{' '.join(self._shell)}` did not run the questions: {asked.broken}",
                hint=f"it said: {asked.noise}" if asked.noise else None,
            )
        return asked.results

    async def close(self) -> None:
        """Nothing is kept between two calls."""
