"""The tables of engines' arguments, and the tool that writes them."""

import sys
from pathlib import Path

import pytest
from tables import each

from attncalc import AttncalcError
from attncalc.engines.arguments import (
    COMPUTED,
    FLAG,
    MAY_CHANGE,
    NOTHING,
    OPTIONAL,
    SWITCH,
    UNCLASSIFIED,
    VALUE,
    VALUES,
    Argument,
    Arguments,
    Table,
    arguments_of,
    names_of,
    number,
    read_table,
    table_file,
    with_version,
)
from attncalc.engines.sglang.versions import sglang_version
from attncalc.engines.vllm.versions import vllm_version

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))

import engine_arguments

TABLES = {name: read_table(table_file(name)) for name in ("vllm", "sglang", "llamacpp")}


def arguments(engine: str, version: str | None = None) -> Arguments:
    if engine == "vllm":
        return arguments_of("vllm", "vLLM", vllm_version(version))
    return arguments_of("sglang", "SGLang", sglang_version(version))


@each("engine", [*TABLES])
def test_each_argument_is_classified_by_what_it_does_to_the_memory(engine: str) -> None:
    """A person writes the last column of what a new version adds; the file explains the words."""
    rows = TABLES[engine].rows
    assert [row.names[0] for row in rows if row.memory == UNCLASSIFIED] == []
    assert {row.memory for row in rows} == {COMPUTED, MAY_CHANGE, NOTHING}
    assert {row.takes for row in rows} <= {VALUE, VALUES, OPTIONAL, FLAG, SWITCH}


def test_the_newest_known_version_of_an_engine_is_in_its_table() -> None:
    assert number(TABLES["vllm"].versions[-1]) == vllm_version(None).number
    assert number(TABLES["sglang"].versions[-1]) == sglang_version(None).number


@each("engine", [*TABLES])
def test_an_argument_has_one_row_at_a_time(engine: str) -> None:
    table = TABLES[engine]
    for version in table.versions:
        names = [name for row in table.rows if row.is_in(number(version)) for name in names_of(row)]
        assert len(names) == len(set(names)), version


@each("engine", [*TABLES])
def test_an_argument_means_the_same_in_all_versions(engine: str) -> None:
    classes: dict[str, set[str]] = {}
    for row in TABLES[engine].rows:
        for name in row.names:
            classes.setdefault(name, set()).add(row.memory)
    assert {name: found for name, found in classes.items() if len(found) > 1} == {}


# Arguments of the engines' own documentation, at the versions that brought or dropped them.
@each(
    ("engine", "version", "name", "takes"),
    [
        ("vllm", "0.33.0", "--tensor-parallel-size", VALUE),
        ("vllm", "0.33.0", "--no-enable-prefix-caching", SWITCH),
        ("vllm", "0.5.0", "--enable-prefix-caching", FLAG),
        ("vllm", "0.33.0", "--cudagraph-capture-sizes", VALUES),
        ("vllm", "0.33.0", "--hf-token", OPTIONAL),
        ("vllm", "0.33.0", "--api-server-count", VALUE),
        ("vllm", "0.33.0", "--headless", FLAG),
        ("vllm", "0.33.0", "--allowed-origins", VALUE),  # one JSON
        ("vllm", "0.17.0", "--swap-space", VALUE),
        ("vllm", "0.18.0", "--swap-space", None),
        ("vllm", "0.16.0", "--disable-log-requests", SWITCH),
        ("vllm", "0.17.0", "--disable-log-requests", None),
        ("vllm", "0.11.0", "-O", VALUE),
        ("vllm", "0.8.2", "--speculative-model", VALUE),
        ("vllm", "0.9.2", "--speculative-model", None),
        ("sglang", "0.5.23", "--tp-size", VALUE),
        ("sglang", "0.5.23", "--enable-hicache", FLAG),
        ("sglang", "0.5.22", "--enable-hicache", None),
        ("sglang", "0.5.23", "--cuda-graph-max-bs", None),
        ("sglang", "0.5.19", "--cuda-graph-max-bs", VALUE),
        ("sglang", "0.5.23", "--cuda-graph-bs-decode", VALUES),
        ("sglang", "0.5.23", "--model-type", VALUE),  # of `sglang serve` alone
        ("sglang", "0.4.6", "--enable-ep-moe", FLAG),
        ("sglang", "0.5.4", "--enable-ep-moe", None),  # an error since then
        ("sglang", "0.5.17", "--stat-loggers", None),  # a field that is no argument
    ],
)
def test_versions_have_the_arguments_of_their_source(
    engine: str, version: str, name: str, takes: str | None
) -> None:
    found = arguments(engine, version).by_name.get(name)
    assert (found.takes if found else None) == takes


@each(
    ("engine", "name", "whole"),
    [
        ("vllm", "--max-model", "--max-model-len"),
        ("vllm", "--tensor-parallel", "--tensor-parallel-size"),
        ("vllm", "--kv-cache-memory", "--kv-cache-memory-bytes"),
        ("vllm", "--no-enable-prefix", "--no-enable-prefix-caching"),
        ("sglang", "--tp", "--tp-size"),
        ("sglang", "--speculative-algo", "--speculative-algorithm"),
    ],
)
def test_the_beginning_of_a_name_is_enough(engine: str, name: str, whole: str) -> None:
    assert arguments(engine).find(name)[0] == whole


@each(
    ("engine", "version", "name", "error", "tip"),
    [
        (
            "vllm",
            None,
            "--max-model-length",
            "vLLM 0.33.0 has no argument --max-model-length",
            "did you mean '--max-model-len'?",
        ),
        (
            "vllm",
            None,
            "--swap-space",
            "vLLM 0.33.0 has no argument --swap-space",
            "vLLM 0.17.1 has it: give --engine-version 0.17.1, or leave it out",
        ),
        (
            "vllm",
            "0.9.2",
            "--moe-backend",
            "vLLM 0.9.2 has no argument --moe-backend",
            "vLLM 0.17.0 has it: give --engine-version 0.17.0, or leave it out",
        ),
        ("vllm", None, "--omni", "vLLM 0.33.0 has no argument --omni", "leave it out"),
        (
            "sglang",
            None,
            "--model_path",
            "SGLang 0.5.23 has no argument --model_path",
            "did you mean '--model-path'?",
        ),
        (
            "sglang",
            None,
            "--pp",
            "--pp of the command is ambiguous",
            "SGLang 0.5.23 has --pp-async-batch-depth, --pp-max-micro-batch-size, --pp-size",
        ),
    ],
)
def test_an_argument_that_the_engine_does_not_have_is_an_error(
    engine: str, version: str | None, name: str, error: str, tip: str
) -> None:
    with pytest.raises(AttncalcError) as raised:
        arguments(engine, version).find(name)
    assert (raised.value.message, raised.value.tip) == (error, tip)


def test_a_version_before_the_oldest_table_has_the_arguments_of_all() -> None:
    """vLLM's V0 has no number, and `VLLM_USE_V1=0` may be any version before 0.11."""
    found = arguments("vllm", "v0")
    assert {"--swap-space", "--moe-backend", "--use-v2-block-manager"} <= found.by_name.keys()


SOURCE = {
    "vllm/version.py": "",
    "vllm/config/model.py": """
class Base:
    seed: int = 0

class ModelConfig(Base):
    enforce_eager: bool = False
    sizes: "list[int] | None" = None
    hf_token: bool | str | None = None
    names: Annotated[list[str], 1] = None
    modes: Literal["a"] | list[str] = "a"
""",
    "vllm/engine/arg_utils.py": """
def add_cli_args(parser):
    kwargs = get_kwargs(ModelConfig)
    again = kwargs["sizes"]
    parser.add_argument("--seed", "-s", **kwargs["seed"])
    parser.add_argument("--enforce-eager", **kwargs["enforce_eager"])
    parser.add_argument("--sizes", **again)
    parser.add_argument("--hf-token", **{**kwargs["hf_token"], "default": None})
    parser.add_argument("--names", **kwargs["names"])
    parser.add_argument("--modes", **kwargs["modes"])
    parser.add_argument("--headless", action="store_true")
    parser.add_argument("--old", action=StoreBoolean, nargs="?", const="True")
    parser.add_argument("model_tag")
""",
    "vllm/entrypoints/openai/cli_args.py": """
class FrontendArgs:
    host: str | None = None
    allowed_origins: list[str] = []

    def f(frontend_kwargs):
        del frontend_kwargs["allowed_origins"]["nargs"]
""",
    "vllm/entrypoints/cli/serve.py": """
serve_parser.add_argument("--config")
other_parser.add_argument("--url")
""",
}


def source(folder: Path, changes: dict[str, str]) -> Path:
    """Write a small vLLM, with 50 further arguments, which the tool wants of an engine."""
    more = "".join(f'\nparser.add_argument("--x{i}")' for i in range(50))
    for name, text in (SOURCE | changes).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + (more if name.endswith("arg_utils.py") else ""), encoding="utf-8")
    return folder


def test_the_tool_reads_arguments_from_source(tmp_path: Path) -> None:
    found = engine_arguments.arguments_of("vllm", source(tmp_path, {}))
    own = {row.names: row.takes for row in found if not row.names[0].startswith("--x")}
    assert own == {
        ("--seed", "-s"): VALUE,  # of its base class
        ("--enforce-eager",): SWITCH,
        ("--sizes",): VALUES,
        ("--hf-token",): OPTIONAL,
        ("--names",): VALUES,
        ("--modes",): VALUE,
        ("--headless",): FLAG,
        ("--old",): OPTIONAL,
        ("--host",): VALUE,
        ("--allowed-origins",): VALUE,
        ("--config",): VALUE,
    }


@each(
    ("call", "error"),
    [
        ('parser.add_argument("--a", **unknown["a"])', "unknown"),
        (
            'kwargs = get_kwargs(ModelConfig)\nparser.add_argument("--a", **kwargs["a"])',
            "no field a",
        ),
    ],
)
def test_the_tool_stops_at_what_it_does_not_understand(
    call: str, error: str, tmp_path: Path
) -> None:
    folder = source(tmp_path, {"vllm/scripts.py": "", "vllm/entrypoints/x/cli_args.py": call})
    with pytest.raises(SystemExit, match=f"not understood: .*{error}"):
        engine_arguments.arguments_of("vllm", folder)


CPP = """
    add_opt(common_arg(
        // a note on {braces}
        {"-c", "--ctx-size"}, "N",
        string_format("size (default: %d)", params.n_ctx),
        [](common_params & params, int value) { params.n_ctx = value; }
    ).set_env("LLAMA_ARG_CTX_SIZE"));
    add_opt(common_arg({ "--mmap" }, { "--no-mmap" }, "help",
        [](common_params & params, bool value) { params.use_mmap = value; }));
    add_opt(common_arg({"--range"}, "START", "END", "help",
        [](common_params & params, const std::string & a, const std::string & b) { f(a, b); }));
    add_opt(common_arg({"--version"}, "help", [](common_params &) { exit(0); }));
"""


def test_the_tool_reads_arguments_of_llamacpp(tmp_path: Path) -> None:
    more = [f'add_opt(common_arg({{"--x{i}"}}, "", [](common_params &) {{}}));' for i in range(50)]
    file = tmp_path / "common" / "arg.cpp"
    file.parent.mkdir()
    file.write_text(CPP + "\n".join(more), encoding="utf-8")
    found = engine_arguments.arguments_of("llamacpp", tmp_path)
    assert {row.names: row.takes for row in found if not row.names[0].startswith("--x")} == {
        ("-c", "--ctx-size"): VALUE,
        ("--mmap",): FLAG,
        ("--no-mmap",): FLAG,
        ("--range",): VALUES,
        ("--version",): FLAG,
    }
    file.write_text(file.read_text() + "add_opt(common_arg(other));")
    with pytest.raises(SystemExit, match="not understood: 54 of 55 calls are read"):
        engine_arguments.arguments_of("llamacpp", tmp_path)


def test_the_tool_refuses_a_folder_without_the_engine(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has 0 arguments: it is no source of sglang"):
        engine_arguments.arguments_of("sglang", tmp_path)


def test_a_new_version_adds_and_ends_rows() -> None:
    old = Table(
        ("1.0",),
        (
            Argument(("--kept",), VALUE, "1.0", "", NOTHING),
            Argument(("--gone",), VALUE, "1.0", "", NOTHING),
            Argument(("--other-kind",), FLAG, "1.0", "", MAY_CHANGE),
        ),
    )
    declared = [
        Argument(("--kept",), VALUE),
        Argument(("--other-kind",), SWITCH),
        Argument(("--added",), VALUE),
    ]
    new = with_version(old, "1.1", declared)
    assert new.versions == ("1.0", "1.1")
    assert {(row.names[0], row.first, row.end, row.memory) for row in new.rows} == {
        ("--kept", "1.0", "", NOTHING),
        ("--gone", "1.0", "1.1", NOTHING),
        ("--other-kind", "1.0", "1.1", MAY_CHANGE),
        ("--other-kind", "1.1", "", MAY_CHANGE),  # what it does is known
        ("--added", "1.1", "", UNCLASSIFIED),
    }
    assert [*engine_arguments.differences(old, new)] == [
        "new: --other-kind (switch), may",
        "new: --added (value), unclassified",
        "gone: --gone (value)",
        "gone: --other-kind (flag)",
    ]
