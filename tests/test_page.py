"""The page: its form is that of the commands, and its answers are those of the command line."""

# Without `from __future__ import annotations`, a TypedDict has its types as objects, and not as
# strings.

import json
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import pytest
from asking import REPOSITORY, Ask, of_questions
from tables import each

from attncalc import AttncalcError, fit, load
from attncalc import gpu as gpu_of
from attncalc.cli.declared import command_of
from attncalc.options import COUNT, Count, Option
from attncalc.questions import QUESTIONS, kv
from attncalc.questions.kv.options import KVCacheOptions
from attncalc.questions.question import declared
from attncalc.questions.schema.command import schemas
from attncalc.questions.schemas import schema_name

PAGE = REPOSITORY / "docs/page"
sys.path[:0] = [str(PAGE), str(REPOSITORY / "tools")]

build_page = import_module("build_page")
answer = import_module("answer")
hub = import_module("hub")


def question(command: str, *models: str, **options: Any) -> str:
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return json.dumps({"command": command, "models": models, "options": named})


def asked(command: str, *models: str, **options: Any) -> Any:
    return json.loads(answer.ask(question(command, *models, **options)))


# The schemas


def test_the_published_schemas_are_those_that_the_command_prints(ask: Ask, tmp_path: Path) -> None:
    build_page.write_schemas(tmp_path / "schemas")
    published = {path.name: path.read_text() for path in (tmp_path / "schemas").iterdir()}
    assert len(published) == len(schemas())
    for name in schemas():
        file = f"{schema_name(name).replace('/', '.')}.json"
        assert published[file] == ask("schema", name).out


# What the page is built of

# Asks each question of the page, and for its curve, without the modules that the page lacks.
_WITHOUT = """
import json, re, sys
sys.path[:0] = {places!r}

class Lacking:
    def find_spec(self, name, path=None, target=None):
        file = name.replace(".", "/")
        if re.match({pattern!r}, f"{{file}}.py") or re.match({pattern!r}, f"{{file}}/"):
            raise ModuleNotFoundError(f"the page lacks {{name}}", name=name)

sys.meta_path.insert(0, Lacking())
import answer
for asked in json.load(sys.stdin):
    found = json.loads(answer.ask(json.dumps(asked)))
    print(asked["command"], found.get("errors"), json.loads(answer.curve()) is not None)
"""


def test_no_question_needs_a_module_that_the_page_lacks() -> None:
    options = {
        "fit": {"gpu": "h100"},
        "train": {"gpu": "h100"},
        "plan": {"gpu": "h100", "users": "20"},
    }
    commands = [command["name"] for command in build_page.form()["commands"]]
    questions = [
        {"command": name, "models": ["llama3.1-8b"], "options": options.get(name, {})}
        for name in commands
    ]
    places = [str(PAGE), str(REPOSITORY / "tools"), str(REPOSITORY)]
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT.format(places=places, pattern=build_page.NOT_IN_PAGE)],
        input=json.dumps(questions),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.stdout.splitlines() == [f"{name} None True" for name in commands], done.stderr


# The form


def test_form_has_each_declared_option_once() -> None:
    for command in build_page.form()["commands"]:
        app = command_of(declared(command["name"]))
        callback: Any = app.registered_commands[0].callback
        options = callback.declared.values()
        shown = [option["name"] for group in command["groups"] for option in group["options"]]
        assert sorted(shown) == sorted(option.name.lstrip("-") for option in options)


class _MoreOptions(KVCacheOptions, total=False):
    new: Annotated[Count | None, Option("--new", parse=COUNT, help="Something new. Default: 7.")]


def test_new_option_appears_in_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    question = kv.QUESTION
    monkeypatch.setattr("attncalc.questions.kv.QUESTION", question._replace(options=_MoreOptions))
    (shown,) = (
        each for each in build_page._command("kv")["groups"][-1]["options"] if each["name"] == "new"
    )
    assert shown == {
        "name": "new",
        "label": "New",
        "names": ["--new"],
        "help": "Something new.",
        "default": "7",
        "kind": "text",
        "choices": "",
        "repeated": False,
    }


def test_each_option_of_the_form_has_a_label_in_words() -> None:
    commands = build_page.form()["commands"]
    names = {
        option["name"]
        for command in commands
        for group in command["groups"]
        for option in group["options"]
    }
    assert {*build_page.WORDS["labels"]} == names
    described = {*build_page.WORDS["help"]}
    assert described <= {f"{command['name']} {name}" for command in commands for name in names}


def test_form_has_links_only_if_they_are_given() -> None:
    assert (build_page.form()["source"], build_page.form()["docs"]) == ("", "")
    form = build_page.form("https://example.org/attncalc", "https://example.org/docs")
    assert (form["source"], form["docs"]) == (
        "https://example.org/attncalc",
        "https://example.org/docs",
    )


# Answers

SIZES = {"layers": "32", "heads": "32", "head_dim": "128", "context": "2K"}


@each(
    ("command", "models", "options"),
    of_questions(
        [
            ("kv", ["llama2-70b"], {"batch": "8", "context": "4K", "kv_dtype": "fp8"}),
            ("kv", ["llama2-70b"], {"attention": "mla:512", "max_model_len": "8K"}),
            ("kv", ["gpt2"], {"context": "512,1K", "batch": "1,8"}),
            ("fit", ["llama2-70b"], {"gpu": "h100", "context": "4096"}),
            (
                "fit",
                ["qwen3-8b"],
                {"gpu": "NVIDIA H100 80GB HBM3", "prompt": "4K", "output_len": "1K"},
            ),
            (
                "fit",
                ["qwen3-8b"],
                {"gpu": "l4", "engine": "vllm", "enforce_eager": True, "prefix_caching": False},
            ),
            ("compare", ["llama2-70b"], {"attention": ["mla:512", "gqa:4"]}),
            ("compare", ["llama2-70b", "gpt2"], {"context": "1K,2K"}),
            ("compare", ["llama2-70b,gpt2"], {}),
            ("compare", ["llama2-70b", "mla:512"], {"attention": ["gqa:4"]}),
            # without a GPU, on every GPU, without a model, with every engine
            ("fit", ["qwen3-8b"], {}),
            ("fit", ["qwen3-8b"], {"prompt": "4K", "output_len": "1K", "engine": "sglang"}),
            ("fit", ["gpt2"], {"gpu": "all"}),
            ("fit", [], {"gpu": "4GB", "context": "512"}),
            ("fit", ["gpt2"], {"gpu": "l4", "engine": "all"}),
            ("train", [], {"gpu": "rtx-4060", "context": "512"}),
            # sizes instead of a model
            ("kv", [], SIZES),
            ("fit", [], {**SIZES, "gpu": "h100"}),
            ("fit", [], SIZES),
            ("train", [], SIZES),
            (
                "plan",
                [],
                {**SIZES, "gpu": "h100", "users": "9", "prompt": "1K", "output_len": "1K"},
            ),
        ]
    ),
)
def test_command_line_gives_the_same_json(
    command: str, models: list[str], options: dict[str, Any], ask: Ask
) -> None:
    words = shlex.split(asked(command, *models, **options)["command_line"])
    printed = ask(*words[1:], "--json").out
    assert printed == answer.document(question(command, *models, **options))


@each(
    ("command", "models", "options"),
    [
        ("kv", ["gpt2"], {"context": "abc"}),
        ("kv", ["gpt2"], {"attention": "gqa:7"}),
        ("fit", ["gpt2"], {"kv_memory": "1GiB", "weights_dtype": "int5"}),
        ("fit", ["gpt2"], {"engine": "all"}),
        ("compare", ["gpt2", "bert-base"], {"attention": ["mqa"]}),
        ("compare", ["gpt2", "mqa", "bert-base"], {}),
    ],
)
def test_error_is_that_of_the_command_line(
    command: str, models: list[str], options: dict[str, Any], ask: Ask
) -> None:
    flags = [
        word
        for name, value in options.items()
        for each in (value if isinstance(value, list) else [value])
        for word in (f"--{name.replace('_', '-')}", each)
    ]
    printed = ask(command, *models, *flags)
    (error,) = asked(command, *models, **options)["errors"]
    assert printed.code == 2
    assert printed.err == f"error: {error['error']}\n  tip: {error['tip']}\n"


def test_a_tip_about_an_unlike_gpu_is_in_the_words_of_the_page() -> None:
    (error,) = asked("fit", "gpt2", gpu="no-such-gpu")["errors"]
    assert error["tip"] == "give its memory, as 24GB, or choose one from the list"


@each(
    ("command", "options", "tip"),
    [
        ("kv", {}, "The list of this field has them all; or drop a config.json, GGUF or YAML"),
        ("fit", {"gpu": "h100"}, "The list of this field has them all; or drop a config.json"),
    ],
)
def test_a_tip_about_names_is_in_the_words_of_the_page(
    command: str, options: dict[str, str], tip: str
) -> None:
    (error,) = asked(command, "no-such-model", **options)["errors"]
    assert error["tip"].startswith(tip)


@each(
    ("model", "gpu", "tip"),
    [
        ("lama2-70b", "h100", "did you mean 'llama2-70b'? attncalc.preset_names() lists them all"),
        ("gpt2", "h1000", "did you mean 'h100'? attncalc.gpu_names() lists them all"),
    ],
)
def test_a_tip_about_names_is_in_the_words_of_python(model: str, gpu: str, tip: str) -> None:
    with pytest.raises(AttncalcError) as raised:
        fit(model, gpu=gpu)
    assert raised.value.tip.startswith(tip)


@each(
    ("call", "tip"),
    [
        (lambda: load("lama2-70b"), "did you mean 'llama2-70b'? attncalc.preset_names() lists"),
        (lambda: gpu_of("h1000"), "did you mean 'h100'? attncalc.gpu_names() lists them all"),
        (lambda: gpu_of("no-such"), "give its memory, as '24GB'; attncalc.gpu_names() lists"),
    ],
)
def test_the_text_of_an_exception_is_in_the_words_of_python(call: Any, tip: str) -> None:
    with pytest.raises(AttncalcError, match=re.escape(f"  tip: {tip}")):
        call()


@pytest.mark.parametrize("command", [name for name, listed in QUESTIONS.items() if listed.on_page])
def test_an_option_of_an_address_that_the_command_lacks_is_an_error(command: str) -> None:
    (error,) = asked(command, "gpt2", top_k="1")["errors"]
    assert error["error"] == "no such option: --top-k"


def test_no_model_is_an_error_that_says_what_to_type() -> None:
    (error,) = asked("kv")["errors"]
    assert error["is_model"]
    assert "llama3.1-8b" in error["tip"]


def test_headline_is_the_verdict_where_there_is_one() -> None:
    assert asked("fit", "llama2-70b", gpu="h100", context="4096")["headline"].startswith(
        "DOES NOT FIT"
    )
    assert asked("kv", "llama2-70b", context="4096")["headline"] == "KV cache 1.25 GiB"


def test_bar_pieces_fill_what_the_engine_takes() -> None:
    bar = asked("fit", "qwen3-8b", gpu="h100", context="8192")["bar"]
    sizes = {piece["kind"]: piece["share"] * 79.1 for piece in bar["pieces"]}  # GiB of an H100
    assert sum(sizes.values()) == pytest.approx(72.8, abs=0.05)  # 0.92 of them
    assert [each["kind"] for each in bar["legend"]] == ["weights", "runtime", "cache"]


@each(
    ("options", "has_others"),
    [
        ({"gpu": "h100"}, False),
        ({"gpu": "rtx-4090", "engine": "llamacpp"}, False),
        ({"kv_memory": "9GiB"}, None),
    ],
)
def test_bar_has_the_words_of_the_command(
    options: dict[str, str], has_others: bool | None, ask: Ask
) -> None:
    flags = [
        word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)
    ]
    printed = " ".join(ask("fit", "qwen3-8b", "--context", "8192", *flags, "--plain").out.split())
    bar = asked("fit", "qwen3-8b", context="8192", **options)["bar"]
    assert (bar is None) == (has_others is None)
    if bar:
        words = ", ".join(each["text"] for each in bar["legend"])
        assert words in printed
        assert bar["caption"] in printed


def test_each_change_is_options_of_the_command() -> None:
    command = next(each for each in build_page.form()["commands"] if each["name"] == "fit")
    names = {
        name
        for group in command["groups"]
        for option in group["options"]
        for name in option["names"]
    }
    changes = asked("fit", "llama2-70b", gpu="h100", context="4096")["changes"]
    assert changes
    assert {
        word for change in changes for word in change["flag"].split() if word.startswith("--")
    } <= names


@each(
    ("flag", "words"),
    [
        ("--gpus 4 --zero 3", "4 GPUs, ZeRO 3"),
        ("--optimizer adam8bit --no-master-weights", "8-bit Adam, no fp32 master weights"),
        ("-b 2 --gradient-accumulation 4", "batch 2, 4 micro-batches per step"),
        ("--new-option {}", "--new-option {}"),
    ],
)
def test_a_change_of_training_is_in_words(flag: str, words: str) -> None:
    assert answer.change_in_words(flag) == words


def test_a_change_gives_the_requests_of_all_its_replicas() -> None:
    # 6 GPUs of tp 2 are 3 replicas, of 12 requests each.
    changes = asked("fit", "qwen3-32b", gpu="h100", context="32768", batch="32")["changes"]
    of_replicas = [change for change in changes if "per replica" in change["words"]]
    assert [(change["flag"], change["gives"]) for change in of_replicas] == [
        ("--weights-dtype fp8 --gpus 6 --tp 2", "36 requests")
    ]


def test_a_tip_lists_a_few_of_many_names() -> None:
    (error,) = asked("fit", "qwen", gpu="h100")["errors"]
    names = error["tip"].split("?")[0].split(", ")
    assert len(names) == answer.MOST_NAMES
    assert re.search(r" and \d+ more$", names[-1])
    (error,) = asked("fit", "mistral-7b", gpu="h100")["errors"]
    assert error["tip"].startswith("which one: mistral-7b-v0.1, mistral-7b-v0.3? ")


def test_headline_has_changes_in_words() -> None:
    headline = asked("train", "llama3.1-8b", gpu="h100")["headline"]
    assert headline.startswith("DOES NOT FIT on one GPU. 4 are enough")
    assert ": 4 GPUs, ZeRO 3 needs " in headline
    further = asked("train", "llama3.1-8b", gpu="h100", batch="16", context="8K")["headline"]
    assert " batch 1, 16 micro-batches per step, " in further


@each(
    ("model", "ends"),
    [
        ("llama2-70b", "2 GPUs are enough: tensor parallelism 2."),
        ("llama3.1-405b", "16 GPUs are enough: tensor parallelism 8, 2 pipeline stages."),
    ],
)
def test_headline_of_fit_says_once_how_many_gpus_are_enough(model: str, ends: str) -> None:
    assert asked("fit", model, gpu="h100", context="4096")["headline"].endswith(ends)


def test_warnings_are_not_among_the_notes() -> None:
    beyond = asked("kv", "gpt2", context="4096")
    (warning,) = beyond["warnings"]
    assert warning.startswith("warning: context 4,096 is beyond ")
    assert warning not in beyond["notes"]


def test_what_explains_a_table_is_below_it() -> None:
    compared = asked("compare", "llama2-70b")["legend"]
    assert [note.split(": ")[0] for note in compared] == [
        "* as released. attn.",
        "decode FLOP/byte",
    ]
    planned = asked("plan", "llama3.1-8b", gpu="h100", users="20")
    assert [note.split(" ")[0] for note in planned["legend"]] == ["users:", "TTFT"]
    assert not {*planned["legend"]} & {*planned["notes"]}


def test_fit_has_no_notes_about_bounds_that_are_not_shown() -> None:
    notes = " ".join(asked("fit", "qwen3-8b", gpu="h100", context="8192")["notes"])
    assert "runtime memory" in notes
    assert "Bounds, not estimates" not in notes


def test_headline_of_compare_is_one_line() -> None:
    compared = asked("compare", "llama2-70b", "gpt2")
    assert compared["headline"] == "KV cache 320 MiB with llama2-70b, 72 MiB with gpt2"
    assert "LLaMA-2 70B, GPT-2 (124M)" in compared["facts"]
    kinds = asked("compare", "llama2-70b")["headline"]
    assert kinds == "KV cache 1.25 GiB, 10.00 GiB with MHA"
    # an encoder has no cache
    assert asked("compare", "bert-base")["headline"] == "BERT Base (uncased)"


@each(
    ("gpu", "error"),
    [
        ("local", "--gpu local: a page cannot see the GPU of this machine"),
        ("cpu", "--gpu cpu: a page cannot see the memory of this machine"),
    ],
)
def test_a_page_does_not_answer_about_the_machine_that_shows_it(gpu: str, error: str) -> None:
    assert asked("fit", "gpt2", gpu=gpu)["errors"][0]["error"] == error
    if gpu == "cpu":
        assert "errors" not in asked("fit", "gpt2", gpu=gpu, ram="32GB")


def test_a_prompt_without_an_output_has_the_output_of_plan() -> None:
    of_fit = asked("fit", "qwen3-8b", gpu="h100", prompt="4K")
    of_plan = asked("plan", "qwen3-8b", gpu="h100", users="9", prompt="4K")
    assert "(4,096 + 1,024 tokens)" in of_fit["headline"]
    assert "4,096 + 1,024 tokens" in of_plan["facts"][-1]


def test_compare_draws_a_line_per_kind_up_to_the_models_maximum() -> None:
    asked("compare", "llama2-70b")
    curve = json.loads(answer.curve())
    kinds = [series["label"] for series in curve["series"]]
    assert kinds == ["MHA", "GQA-32", "GQA-16", "GQA-8", "GQA-4", "GQA-2", "MQA"]
    assert curve["longest"] == curve["series"][0]["points"][-1]["x"]


def test_each_models_line_ends_at_its_maximum() -> None:
    asked("compare", "llama2-70b", "gpt2")
    of_llama, of_gpt2 = json.loads(answer.curve())["series"]
    assert len(of_llama["points"]) == len(of_gpt2["points"]) + 2  # 2K and 4K


def test_figure_is_explained_by_its_formula() -> None:
    figures = asked("kv", "llama2-70b", context="4096")["figures"]
    lines = json.loads(answer.explain(0))
    assert figures[0]["human"] == "1.25 GiB"
    assert "L  * B * T    * 2 * n_kv_heads * d_head * bytes" in lines


@each(
    ("command", "models", "options", "n_series", "has_limit"),
    [
        ("kv", ["llama2-70b"], {}, 1, False),
        ("compare", ["llama2-70b", "gpt2"], {}, 2, False),
        ("fit", ["qwen3-8b"], {"gpu": "h100", "context": "8192"}, 1, True),
        ("fit", ["qwen3-8b"], {"kv_memory": "4GiB"}, 1, True),
        ("fit", ["qwen3-8b"], {"gpu": "h100", "prompt": "4K", "output_len": "1K"}, 1, True),
    ],
)
def test_curve_shows_the_cache_of_each_model(
    command: str, models: list[str], options: dict[str, str], n_series: int, has_limit: bool
) -> None:
    asked(command, *models, **options)
    curve = json.loads(answer.curve())
    assert len(curve["series"]) == n_series
    assert (curve["limit"] is not None) == has_limit
    for series in curve["series"]:
        heights = [point["y"] for point in series["points"]]
        assert heights == sorted(heights)  # a longer context needs no less


def test_hub_is_not_asked_without_the_readers_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    hub.install()
    monkeypatch.delitem(sys.modules, "attncalc.config.remote", raising=False)
    try:
        (error,) = asked("kv", "an-org/a-model")["errors"]
    finally:
        del sys.modules["attncalc.config.download"]
        sys.modules.pop("attncalc.config.remote", None)
    assert error["hub"] == "an-org/a-model"
