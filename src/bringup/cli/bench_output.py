"""Where the results of `bench` go: after every load into the files, at the end onto standard output."""

import sys
from dataclasses import dataclass
from pathlib import Path

from bringup.cli.progress import ProgressLine
from bringup.cli.streams import forsake_output
from bringup.errors import (
    EXIT_FINDINGS,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_UNKNOWN,
    BringupError,
    UsageError,
)
from bringup.flows.bench_watch import Progress
from bringup.report.bench_words import throughput
from bringup.stats.load_words import load_words
from bringup.transport.files import require_writable, write_file
from bringup.units import seconds_text
from bringup.values.bench import BenchResult, BenchRun
from bringup.values.finding import Severity, worst


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOutput:
    """What the user asked to get."""

    is_json: bool = False
    output: Path | None = None  # with every request
    csv: Path | None = None
    records: Path | None = None
    beside: BenchRun | None = None
    is_plain: bool = False
    show_all: bool = False

    def require_places(self) -> None:
        """Raises when a file that was asked for cannot be written: said before the work, not after it.

        Raises:
            UsageError: it cannot.
        """
        places = [path for path in (self.output, self.csv, self.records) if path is not None]
        for path in places:
            require_writable(path)
        files = [path.resolve() for path in places if path.is_file() or not path.exists()]
        if len(set(files)) < len(files):
            raise UsageError("two of `-o`, `--csv` and `--records` name the same file", hint="name another")
        if self.records is not None and self.records.suffix not in (".jsonl", ".parquet"):
            raise UsageError(
                f"`--records {self.records}` names no format", hint="name a FILE.jsonl or a FILE.parquet"
            )
        if self.records is not None and self.records.suffix == ".parquet":
            require_parquet()

    def write_files(self, result: BenchResult) -> None:
        """Everything that was measured so far, into the files that were asked for."""
        # A result is written whole or not at all: whoever ends the program in between keeps the last one.
        if self.output is not None:
            from bringup.report.bench_json import render_bench_result  # noqa: PLC0415 - only what is printed

            write_file(self.output, render_bench_result(result).encode())
        if self.csv is not None:
            from bringup.report.bench_csv import render_bench_csv  # noqa: PLC0415 - the same

            write_file(self.csv, render_bench_csv(result.run).encode())
        if self.records is not None:
            from bringup.report.bench_records import render_jsonl, render_parquet  # noqa: PLC0415 - the same

            is_parquet = self.records.suffix == ".parquet"
            write_file(self.records, render_parquet(result) if is_parquet else render_jsonl(result).encode())

    def emit(self, result: BenchResult) -> None:
        """The result on standard output, and the files once more with the findings in them."""
        failure: BringupError | None = None
        try:
            self.write_files(result)
        except BringupError as error:  # a disk that filled up meanwhile takes nothing from what is printed
            failure = error
        try:
            self._print(result.run)
            sys.stdout.flush()
        except BrokenPipeError:
            forsake_output()  # `| head` has seen enough: the exit code still tells the verdict
        if failure is not None:
            raise failure

    def _print(self, run: BenchRun) -> None:
        if self.is_json:
            from bringup.cli.terminal import write_json  # noqa: PLC0415 - only what is printed is loaded
            from bringup.report.bench_json import render_bench_json  # noqa: PLC0415 - the same

            write_json(render_bench_json(run))
            return
        from bringup.cli.terminal import terminal_width, use_color  # noqa: PLC0415 - the same
        from bringup.report.bench import TextStyle, render_bench_text  # noqa: PLC0415 - the same

        encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
        style = TextStyle(
            width=terminal_width(),
            has_color=use_color(is_plain=self.is_plain),
            is_ascii=not encoding.startswith("utf"),
            show_all=self.show_all,
        )
        sys.stdout.write(render_bench_text(run, style, beside=self.beside))


def require_parquet() -> None:
    """Raises where nothing here writes Parquet.

    Raises:
        UsageError: pyarrow is not installed.
    """
    from importlib.util import find_spec  # noqa: PLC0415 - hardly ever asked

    if find_spec("pyarrow") is None:
        raise UsageError(
            "Parquet needs the package pyarrow, which is not installed",
            hint="`pip install 'bringup[parquet]'`, or name a FILE.jsonl",
        )


def exit_code_of(run: BenchRun) -> int:
    """What the run amounts to for a script."""
    if not run.is_complete:
        return EXIT_INTERRUPTED
    severity = worst(run.findings)
    if severity in (Severity.WARNING, Severity.FAILURE) or misses_slo(run):
        return EXIT_FINDINGS
    is_known = severity is not Severity.UNKNOWN and any(rung.good for rung in run.rungs)
    return EXIT_OK if is_known else EXIT_UNKNOWN


def misses_slo(run: BenchRun) -> bool:
    """Whether a listed load broke the limits, or a search found no load that keeps them."""
    if run.slo is None:
        return False
    if run.slo_why:  # of a search, which goes over the edge on purpose
        return run.slo_best is None
    return any(rung.within_slo is False for rung in run.rungs)


class LiveProgress:
    """Tells on standard error how far it is."""

    def __init__(self, line: ProgressLine) -> None:
        self._line = line
        self._rungs = 0

    def step(self, text: str) -> None:
        """What is done before the first load."""
        self._line.tell(text)

    def progress(self, progress: Progress) -> None:
        """How far a load is."""
        counts = progress.counts
        left = "" if progress.left_s is None else f", {seconds_text(max(1.0, progress.left_s))} left at most"
        failed = f", {counts.failed:,} failed" if counts.failed else ""
        self._line.tell(
            f"{progress.title}: {progress.tokens_per_s:,.0f} tokens/s, {counts.running:,} running, "
            f"{counts.finished:,} done{failed}, {progress.seconds:.0f} s{left}"
        )

    def rung(self, result: BenchResult) -> None:
        """A load is over: a line that stays."""
        for rung in result.run.rungs[self._rungs :]:
            speed = throughput(rung)
            said = [load_words(rung) + ":", f"{rung.good:,} good"]
            said += [f"{sum(rung.errors.values()):,} failed"] if rung.errors else []
            said += [f"{speed:,.0f} tokens/s"] if speed is not None else []
            said += [f"ttft {seconds_text(rung.ttft.p50)}"] if rung.ttft is not None else []
            said += [f"itl {seconds_text(rung.itl.mean)}"] if rung.itl is not None else []
            self._line.say(" ".join((said[0], ", ".join(said[1:]))))
        self._rungs = len(result.run.rungs)
