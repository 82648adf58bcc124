"""Set up the tests: helpers are imported by their plain names, Hypothesis has no deadline, and no
test uses the hub.
"""

import contextlib
import gc
import io
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer.main
from hypothesis import settings

# collecting garbage as often as by default takes a seventh of the time; `frozen` collects it, too
gc.set_threshold(1_000_000, 20, 20)
sys.path.insert(0, str(Path(__file__).parent))
# a mistyped model name like a/b must not reach the hub
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# transformers would warn into the output of the test that imports it first, which is closed in
# later tests
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
# more of them wait for each other in a loop: 2 took 4 times as long
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("COLUMNS", None)  # xdist sets it, and messages would have lines of its width
# a bug must fail a test, and not look like an error of the input
os.environ.setdefault("ATTNCALC_DEBUG", "1")
settings.register_profile("attncalc", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("attncalc")

# Files of which nothing runs without torch: each calls need_torch() before it imports torch.
collect_ignore: list[str] = []
if find_spec("torch") is None:
    files = sorted(Path(__file__).parent.glob("test_*.py"))
    collect_ignore += [
        file.name for file in files if "\nneed_torch()\n" in file.read_text(encoding="utf-8")
    ]

from asking import NOT_TESTED, Answer, Ask  # noqa: E402
from schemas import check_answer  # noqa: E402

from attncalc import tracing  # noqa: E402
from attncalc.cli import declared, run  # noqa: E402
from attncalc.cli.command import COMPLETE, App  # noqa: E402
from attncalc.config.folder import LocalFile  # noqa: E402
from attncalc.errors import CannotCheckError  # noqa: E402
from attncalc.questions.question import Question  # noqa: E402

tracing.CHECKED = True
_built = cache(lambda app, _, build=typer.main.get_command: build(app))
# A command is built once for all tests: it takes up to 5 ms.
typer.main.get_command = lambda typer_instance: _built(typer_instance, COMPLETE in os.environ)
_make_app = declared.command_of
_apps: dict[int, tuple[Question, App]] = {}


def _app_of(question: Question) -> App:
    """Return the app of a question's command, which is the same each time: a new one would be built
    again.
    """
    if id(question) not in _apps:
        _apps[id(question)] = question, _make_app(question)
    return _apps[id(question)][1]


declared.command_of = _app_of


def pytest_report_header() -> str:
    """Say which files are left out."""
    return f"without torch, left out: {', '.join(collect_ignore)}" if collect_ignore else ""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say in one line which engines are not installed, and so not started."""
    reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", ())]
    missing = [reason.partition(NOT_TESTED)[2] for reason in reasons if NOT_TESTED in reason]
    if missing:
        terminalreporter.write_line(f"{NOT_TESTED}{', '.join(sorted(missing))}", yellow=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest files first: one that begins last would leave the other workers without
    work.
    """
    longest = (
        "test_page_in_browser",
        "test_verify",
        "test_printed_commands",
        "test_same_model",
        "test_plan",
        "test_vllm_plans",
        "test_vram",
        "test_report",
    )
    items.sort(key=lambda item: not item.path.name.startswith(longest))


def pytest_collection_finish() -> None:
    """Collect no garbage among the tests and modules that stay."""
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def frozen() -> Iterator[None]:
    """Collect no garbage among what a file leaves in caches, which are 2 million objects at last:
    `verify --record` collects before each of its steps, which took half a minute.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Return a function that runs a command line in this process: ask("kv", "gpt2", stdin="...").

    Whatever it prints as JSON must be as the command's schema says.
    """

    def run_command(*arguments: str, stdin: str = "") -> Answer:
        monkeypatch.setattr(sys, "argv", ["attncalc", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = run()
        captured = capsys.readouterr()
        if captured.out.startswith('{\n  "schema": "attncalc.'):
            check_answer(captured.out)
        return Answer(code, captured.out, captured.err)

    return run_command


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT interrupt this process and those that it starts, also where the shell ignores it,
    as under nohup.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `verify` skip the times, which are not checked."""
    from attncalc.verify import timing

    monkeypatch.setattr(
        timing, "measure_ceiling", lambda device, dtype: timing.Ceiling(math.inf, math.inf)
    )
    monkeypatch.setattr(timing, "typical", lambda device, run: 1.0)


@pytest.fixture
def without_checks_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `verify` skip them and repeated runs, which take most of the time, and which other tests
    have.
    """
    for name in ("numerics", "behaviour"):
        monkeypatch.setattr(f"attncalc.verify.programs.layers.{name}", lambda *arguments: ())
    monkeypatch.setattr("attncalc.verify.timing.MAX_RUNS", 1)


@pytest.fixture(scope="session", autouse=True)
def unhurried() -> Iterator[None]:
    """Let `verify` take any time: on a busy machine it would shorten contexts, and print how far it
    is.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("attncalc.show.progress.LINE_SECONDS", 3600)
        monkeypatch.setattr("attncalc.verify.options.DEFAULT_MINUTES", 600)
        monkeypatch.setattr("attncalc.verify.options.CATALOGUE_MINUTES", 600)
        monkeypatch.setattr("attncalc.verify.options.SIMULATED_MINUTES", 600)
        yield


@pytest.fixture(autouse=True)
def rough_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `verify` time each pass once, and a CPU's rates on small tensors: no test checks how fast
    this machine is.
    """
    if "attncalc.verify.timing" in sys.modules:
        monkeypatch.setattr("attncalc.verify.timing.MAX_SECONDS", 1e-9)
        monkeypatch.setattr("attncalc.verify.devices.cpu.Cpu.matrix_size", 64)
        monkeypatch.setattr("attncalc.verify.devices.cpu.Cpu.copied_bytes", 2**16)


@pytest.fixture
def on_box() -> Iterator[Callable[..., Any]]:
    """Return a function that lets torch.cuda be that of a `Box` until the test ends; see
    cuda_stand_in.py.
    """
    from cuda_stand_in import stand_in

    with contextlib.ExitStack() as stack:
        yield lambda box: stack.enter_context(stand_in(box))


@pytest.fixture(scope="session")
def transformers() -> ModuleType:
    """Return the package; a test that needs it is skipped where it is missing, or too old."""
    from attncalc.verify import need_transformers

    try:
        need_transformers()
    except CannotCheckError as error:
        pytest.skip(error.message)
    return import_module("transformers")


@pytest.fixture
def headers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let GGUF files end after their headers: the tensors of a large model need no space."""
    from attncalc.config.gguf.files import local_sources

    def without_size(path: Path) -> list[LocalFile]:
        sources = local_sources(path)
        for source in sources:
            source.size = None
        return sources

    monkeypatch.setattr("attncalc.config.gguf.files.local_sources", without_size)
