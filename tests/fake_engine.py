"""A program that stands for an engine: it prints a log, and then serves, hangs or dies.

fake = FakeEngine(tmp_path, log)
fake.install("vllm", ending="serve")
...  # attncalc with fake.path first on PATH starts it
assert fake.left() == []
"""

import os
import sys
from pathlib import Path

# Of a public log (tests/data/engine-logs/excerpts/vllm-qwen2.5-7b-0.24.log); its GPU is not known.
GPU_LOG = """\
(EngineCore pid=1878) INFO 07-09 21:27:35 [core.py:114] Initializing a V1 LLM engine (v0.24.0) \
with config: model='/workspace/base', dtype=torch.bfloat16, max_seq_len=8192
(EngineCore pid=1878) INFO 07-09 21:28:26 [gpu_model_runner.py:5255] Model loading took 14.37 GiB \
memory and 13.381314 seconds
(EngineCore pid=1878) INFO 07-09 21:29:51 [gpu_worker.py:508] Available KV cache memory: 11.92 GiB
(EngineCore pid=1878) INFO 07-09 21:29:51 [kv_cache_utils.py:2146] GPU KV cache size: 223,152 tokens
(EngineCore pid=1878) INFO 07-09 21:29:51 [kv_cache_utils.py:2150] Maximum concurrency for 8,192 \
tokens per request: 27.24x
"""
# What a fake engine does after its log.
ENDINGS = {
    "serve": "time.sleep(600)",
    "die": "sys.exit(3)",
    "be killed": "os.kill(os.getpid(), signal.SIGKILL)",
    # with a child in a session of its own, as daemons are
    "ignore SIGTERM": "time.sleep(600)",
}
_ENGINE = """#!{python}
import os, signal, subprocess, sys, time
{before}
with open({pids!r}, "a") as file:
    file.write(f"{{os.getpid()}}\\n")
with open({arguments!r}, "w") as file:
    file.write("\\n".join(sys.argv[1:]))
with open({environment!r}, "w") as file:
    file.write("\\n".join(f"{{name}}={{value}}" for name, value in os.environ.items()))
for line in {lines!r}:
    print(line, file=sys.stderr, flush=True)
    time.sleep({pause})
{ending}
"""
_IGNORING = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                         start_new_session=True)
with open({pids!r}, "a") as file:
    file.write(f"{{child.pid}}\\n")
"""
# The Python of a fake engine: it has no transformers, and writes the fields as they are.
_PYTHON = """#!{python}
import json, os, sys
if not any(word.endswith("write_config.py") for word in sys.argv):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
folder = sys.argv[-1]
with open(os.path.join(folder, "fields.json")) as file:
    asked = json.load(file)
with open(os.path.join(folder, "config.json"), "w") as file:
    json.dump({{**asked["fields"], **asked["changes"]}}, file)
"""


class FakeEngine:
    def __init__(self, folder: Path, log: str) -> None:
        self.path = folder / "bin"
        self.path.mkdir()
        self._log = log
        self._pids = folder / "pids"
        self._arguments = folder / "arguments"
        self._environment = folder / "environment"

    def install(self, name: str, ending: str = "serve", pause: float = 0.0) -> None:
        """Write the engine and its Python into the folder `path`.

        `ending` is one of ENDINGS, `pause` the seconds after each line.
        """
        python = self.path / "python"
        self._write(python, _PYTHON.format(python=sys.executable))
        before = _IGNORING.format(pids=str(self._pids)) if ending == "ignore SIGTERM" else ""
        text = _ENGINE.format(
            python=sys.executable,
            before=before,
            pids=str(self._pids),
            arguments=str(self._arguments),
            environment=str(self._environment),
            lines=self._log.splitlines(),
            pause=pause,
            ending=ENDINGS[ending],
        )
        self._write(self.path / name, text.replace(f"#!{sys.executable}", f"#!{python}", 1))

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    @property
    def arguments(self) -> list[str]:
        """The arguments that it was started with."""
        return self._arguments.read_text(encoding="utf-8").splitlines()

    @property
    def environment(self) -> dict[str, str]:
        """The variables that it was started with."""
        lines = self._environment.read_text(encoding="utf-8").splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    @property
    def has_started(self) -> bool:
        return self._pids.exists() and bool(self._pids.read_text(encoding="utf-8"))

    def left(self) -> list[int]:
        """Return the processes of it that still run."""
        if not self._pids.exists():
            return []
        pids = [int(line) for line in self._pids.read_text(encoding="utf-8").split()]
        return [pid for pid in pids if runs(pid)]


def runs(pid: int) -> bool:
    """Return whether a process runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
