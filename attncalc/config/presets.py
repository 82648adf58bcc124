"""The built-in models: their names and files, and the repositories whose models they are.

A name is found in any spelling: 'Llama 3.1 8B', 'llama-3.1-8b', 'llama3_1_8b' and Ollama's
'llama3.1:8b' are one.
"""

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import NoSuchModelError, did_you_mean
from ..ggml import FILE_TYPES
from ..records import NamedTuple
from ..units import truncate
from .data_files import compiled_file, file_names, presets_folder

_REPOSITORY = r"(?a)huggingface\.co/([\w.-]+/[\w.-]+)"
_TAG = r"(?a)ollama\.com/library/([\w.-]+(?::[\w.-]+)?)"
_TITLE = r"(?m)^title: *(.+)$"
# A name that may be spelled freely: without a slash, it is no path and no repository.
_FREE_NAME = r"(?a)[\w .:-]{1,80}"
_GGUF_FILE = (
    r"(?i)(?P<name>.+?)(?:-UD)?(?:[-._](?P<type>I?Q\d\w*|TQ\d\w*|B?F16|F32|MXFP4\w*))?"
    r"(?:-\d+-of-\d+)?\.gguf"
)
# Characters of a file's name: no system has longer ones.
_LONGEST_FILE = 255
_WIDE_TYPES = {"bf16": "bf16", "f16": "fp16", "f32": "fp32"}
# {dtype: how the names of quantized repositories end}.
_QUANTIZED_DTYPES = {
    "fp4": r"nvfp4|fp4",
    "mxfp4": r"mxfp4",
    "fp8": r"fp8(?:[-_]?dynamic|[-_]?block)?",
    "int8": r"int8|8-?bit|w8a8|w8a16",
    "q4_k_m": r"gguf",
    "int4": r"(?:awq|gptq|autoround|bnb|quantized|mlx)(?:[-_.](?:int4|4-?bit|w4a16))?|int4|4-?bit"
    r"|w4a16",
}
_QUANTIZED = "|".join(f"(?P<as_{dtype}>{ending})" for dtype, ending in _QUANTIZED_DTYPES.items())
_SIZE = r"\d+(?:\.\d+)?[bBmMtT]"
# A model of torchtune's recipes: llama3_1/8B.
_FAMILY_AND_SIZE = r"(?i)[a-z]+\d\w*/\d+(?:_\d)?B"
# A repository of a distilled model: DeepSeek-R1-Distill-Qwen-14B, DeepSeek-R1-0528-Qwen3-8B.
_DISTILLED = r"(.+?)-(?:Distill|\d{4})-([A-Za-z]+)\d*-([\d.]+B)"
# Types at the end of tags of Ollama's library: 'gemma3:27b-it-qat'.
_OLLAMA_TYPES = {"qat": "q4_0", "fp16": "fp16", "bf16": "bf16", "mxfp4": "mxfp4"}
# The model that a family's name means: that of 'latest' in https://ollama.com/library, if it is
# there.
_FAMILIES = (
    "8x7b=mixtral-8x7b bert=bert-base codellama=codellama-7b deepseek=deepseek-v3 falcon=falcon-7b "
    "gemma2=gemma2-9b gemma3=gemma3-4b gemma=gemma3-4b gemma4=gemma4-e4b glm=glm-4.5-air "
    "gpt-oss=gpt-oss-20b "
    "jamba=jamba-1.5-mini kimi=kimi-k2 llama2=llama2-7b llama3.1=llama3.1-8b llama3.2=llama3.2-3b "
    "llama3.3=llama3.3-70b llama3=llama3-8b llama4=llama4-scout llama=llama3.1-8b "
    "minimax=minimax-m2.5 "
    "mistral-7b=mistral-7b-v0.3 mistral=mistral-7b-v0.3 mixtral=mixtral-8x7b olmo2=olmo2-7b "
    "phi=phi-4 qwen2.5-coder=qwen2.5-coder-7b qwen2.5=qwen2.5-7b qwen3-coder=qwen3-coder-30b "
    "qwen3=qwen3-8b qwen=qwen3-8b t5=t5-base"
)
# {a preset's former name: its name}.
_RENAMED = {"transformer-large": "transformer-big"}
# {a tag of Ollama's library: the preset}, if the words of the name fit several: R1-0528's 8B is
# Qwen3's.
_OLLAMA_TAGS = {
    "deepseek-r1:8b": "qwen3-8b",
    "deepseek-r1:8b-0528-qwen3": "qwen3-8b",
    "mistral:7b": "mistral-7b-v0.3",
    "qwen3:30b": "qwen3-30b-a3b",
}
# {a tag of Ollama's library: the release}, if it is a later one than the preset's: Qwen3 of 2507.
_OLLAMA_RELEASES = {
    "deepseek-r1:8b": "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B",
    "deepseek-r1:8b-0528-qwen3": "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B",
    "qwen3:4b": "Qwen/Qwen3-4B-Thinking-2507",
    "qwen3:4b-instruct": "Qwen/Qwen3-4B-Instruct-2507",
    "qwen3:4b-thinking": "Qwen/Qwen3-4B-Thinking-2507",
}
# Words that change no size of a model: 'llama3.1:8b-instruct'.
_TUNED = frozenset({"chat", "hf", "instruct", "it", "latest", "text"})


class Preset(NamedTuple):
    """What a built-in model can be found by."""

    name: str  # the name of its file: 'qwen3-32b'
    title: str  # its title: 'Qwen3 32B'
    # the repositories that its sources name, on the Hugging Face hub: 'Qwen/Qwen3-32B'
    repositories: tuple[str, ...]
    tags: tuple[str, ...] = ()  # the tags of Ollama's library that its sources name: 'phi3:14b'

    @property
    def family(self) -> str:
        """The letters that its name starts with: 'qwen' for 'qwen2.5-7b' and 'qwen3-32b'; 't5' for
        't5-base'.
        """
        letters = re.match(r"[a-z]\d+|[a-z]+", self.name)
        if letters:
            return letters[0]
        return self.name

    @property
    def is_listed(self) -> bool:
        """Return whether lists have it; a model of more.json is only found by its name."""
        return self.name in preset_names()

    def matches(self, word: str) -> bool:
        """Return whether the name, the title or a repository contains `word`, in any case."""
        return any(
            word.lower() in text.lower() for text in (self.name, self.title, *self.repositories)
        )


def _folder() -> Path:
    return presets_folder() / "models"


def preset_names() -> list[str]:
    """Return the sorted names of the presets that lists have. `presets` has further models."""
    return list(file_names(_folder()))


@cache
def _more() -> dict[str, dict[str, Any]]:
    """Return {name: title, sources and config.json} of the models that have no file of their
    own.
    """
    return compiled_file(presets_folder() / "more.json") or {}


def preset_text(name: str) -> str:
    """Return the YAML text of a preset, by its name or a repository.

    Raises AttncalcError if there is no such preset.
    """
    found = preset_of(name)
    if found is None:
        raise NoSuchModelError(
            f"no preset named '{truncate(name)}'", f"{hint(name)}'attncalc presets' lists them all"
        )
    if found in preset_names():
        return _file(found).read_text(encoding="utf-8")
    from .yaml import to_yaml

    return to_yaml(compiled_preset(found) or {}, "its config.json")


def compiled_preset(name: str) -> dict[str, Any] | None:
    """Return a preset's data from its config.json in more.json or the wheel's JSON, or None if it
    has to be parsed.
    """
    if name in preset_names():
        return compiled_file(_file(name))
    more = {**_more()[name]}
    del more["config"]
    return {**_converted(name), **more}


@cache
def _converted(name: str) -> Mapping[str, Any]:
    """Return a preset's data from its config.json in more.json, which takes milliseconds."""
    from .huggingface import convert_config

    return convert_config(_more()[name]["config"], f"{name}.json").data


def preset_config(name: str) -> dict[str, Any] | None:
    """Return the fields of a preset's config.json that are not its class's defaults; None without a
    class.
    """
    config: dict[str, Any] | None = (_more().get(name) or {}).get("config")
    return config or (compiled_file(presets_folder() / "configs.json") or {}).get(name)


@cache
def presets() -> tuple[Preset, ...]:
    """Return all built-in models, by name and size. It reads the presets as text, without parsing:
    2 ms for 80.
    """
    listed = [_described(name, _file(name).read_text(encoding="utf-8")) for name in preset_names()]
    more = [
        _described(name, "\n".join([f"title: {one['title']}", *one["sources"]]))
        for name, one in _more().items()
    ]
    return tuple(sorted([*listed, *more], key=lambda preset: _by_size(preset.name)))


@cache
def preset_of(name: str) -> str | None:
    """Return the preset that `name` means, or None.

    Args:
        name: A preset's name, a repository that a preset's sources name ('Qwen/Qwen3-32B'), the
            repository's last part ('Qwen3-32B'), or one of them in another spelling ('qwen3:32b',
            'Qwen 3 32B'). The type of a GGUF file at its end does not matter ('qwen3-32b:Q4_K_M').
    """
    if name in preset_names() or name in _more():
        return name
    known = _by_repository()
    lower = name.lower()
    if lower in _RENAMED:
        return _RENAMED[lower]
    tag = with_file_type(lower)[0]
    if tag in _OLLAMA_TAGS:
        return _OLLAMA_TAGS[tag]
    # Qwen_Qwen3-32B of bartowski's files
    found = known.get(lower) or known.get(lower.replace("_", "/", 1))
    if found:
        return found[0]
    if is_family_and_size(name):
        name = re.sub("[/_]", " ", name)
    # 'qwen3-235b'; 'T5' is any T5
    spelled = _spelled(name)
    has_size = re.search(r"(?i)\d[bmt](?![a-z])", name)
    if len(spelled) == 1 and (_name_words(name) in _by_words() or has_size):
        return next(iter(spelled))
    return None


def is_family_and_size(name: str) -> bool:
    """Return whether a name is written as in torchtune's recipes, 'llama3_1/8B', which is no
    repository.
    """
    return re.fullmatch(_FAMILY_AND_SIZE, name) is not None


def of_ollama(name: str) -> str:
    """Return a name of Ollama's library with the tag that it means: 'llama3.2:3b' of 'llama3.2' and
    'llama3.2:latest'.

    Any other name is returned as it is. The 'latest' deepseek-r1 is the 8B of its distilled models.
    """
    if name.lower().removesuffix(":latest") == "deepseek-r1":
        return "deepseek-r1:8b"
    family = of_family(name)
    if family:
        return ollama_name(family) or family
    return name


@cache
def of_family(name: str) -> str | None:
    """Return the name of the model that a family's name means, in any spelling: 'qwen3-8b' of 'Qwen
    3'; or None.
    """
    words = _name_words(name) if re.fullmatch(_FREE_NAME, name) else ()
    pairs = (one.split("=") for one in _FAMILIES.split())
    return next((model for family, model in pairs if _name_words(family) == words), None)


def preset_at(path: str) -> str | None:
    """Return the preset that a folder of another machine has by its name: qwen3-8b of
    '/models/Qwen3-8B', or None.
    """
    cached = re.search(r"models--([\w.-]+?)--([\w.-]+)", path)  # the cache of huggingface_hub
    if cached:
        return preset_of(f"{cached[1]}/{cached[2]}")
    folder, _, name = path.rstrip("/").rpartition("/")
    is_repository = re.fullmatch(r"\w[\w.-]*", folder) is not None
    if "/" in path and not is_repository:
        return preset_of(name)
    return None


@cache
def with_file_type(name: str) -> tuple[str, str | None]:
    """Return a preset's name and the type of a GGUF file at its end: 'q4_k_m' of
    'llama3.1-8b:Q4_K_M', or None.

    A preset's own name, a path and a repository are returned as they are.
    """
    match = re.fullmatch(r"(?P<name>.+)[:-](?P<type>\w+)", name)
    tag = match["type"].lower() if match else ""
    if tag in FILE_TYPES:
        file_type = tag
    elif ":" in name:
        file_type = _OLLAMA_TYPES.get(tag)
    else:
        file_type = None
    if match is None or not re.fullmatch(_FREE_NAME, name) or file_type is None:
        return name, None
    return match["name"], file_type


def of_gguf_file(path: str) -> tuple[str, str | None] | None:
    """Return a model's name and the type of its weights in the name of a GGUF file, if a preset has
    that name.

    ('Qwen3-8B', 'q4_k_m') of 'models/Qwen3-8B-Q4_K_M.gguf'. The type is None if the name has none.
    """
    file = re.split(r"[/\\]", path)[-1]
    match = re.fullmatch(_GGUF_FILE, file) if len(file) <= _LONGEST_FILE else None
    if match is None or preset_of(match["name"]) is None:
        return None
    return match["name"], match["type"] and match["type"].lower()


def of_absent_file(path: str) -> tuple[str, str | None] | None:
    """Return the name and type of a GGUF file that is not on this machine, if attncalc has weights
    of that type.

    Floating-point weights have their dtype: 'fp16' of 'Qwen3-8B-F16.gguf'.
    """
    found = of_gguf_file(path)
    if found is None or os.path.exists(path):
        return None
    if found[1] in _WIDE_TYPES:
        return found[0], _WIDE_TYPES[found[1]]
    if found[1] in (None, "mxfp4", *FILE_TYPES):
        return found
    return None


def of_other_machine(path: str) -> tuple[str, str | None]:
    """Return the model and the type that a path of another machine names: ('Qwen3-8B', 'q4_k_m') of
    its GGUF file, and ('qwen3-8b', None) of '/models/Qwen3-8B'. A path of this machine, and any
    other name, is returned as it is.
    """
    found = of_absent_file(path)
    if found:
        return found
    preset = preset_at(path)
    if preset and not os.path.exists(path):
        return preset, None
    return path, None


def unquantized(repository: str) -> tuple[str, str] | None:
    """Return the preset and the dtype of a quantized copy: ('qwen3-8b', 'int4') of
    'Qwen/Qwen3-8B-AWQ', or None.

    It goes by the name alone, for a tip.
    """
    name, dtype = unquantized_name(repository)
    preset = preset_of(name) if dtype else None
    if preset and dtype:
        return (preset, dtype)
    return None


def unquantized_name(repository: str) -> tuple[str, str | None]:
    """Return the name of the model of a quantized copy, and its dtype: None if the name has no
    dtype at its end.
    """
    name = repository.rpartition("/")[2]
    if len(name) > _LONGEST_FILE:
        return name, None
    first = None
    while True:
        match = re.fullmatch(rf"(?i)(.+?)(?:-qat)?[-_.](?:{_QUANTIZED})", name)
        if not match:
            return name, first
        name = match[1]
        if first is None:
            first = next(dtype for dtype in _QUANTIZED_DTYPES if match[f"as_{dtype}"])


def of_release(data: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a preset's data for the release that `name` means: Qwen2.5-7B-Instruct states a
    shorter context.

    `name` is what the preset was asked for: its own name, or a release in any spelling.
    """
    asked = (_release_of_tag(name) or name).rpartition("/")[2]
    meant = [_all_words(asked)]
    # a tag of Ollama's library is the Instruct release, unless it says another: qwen2.5:7b
    if ":" in asked:
        meant.append(_all_words(f"{asked}-instruct"))
    for release, context in data.get("max_context_of", {}).items():
        if _all_words(release.rpartition("/")[2]) in meant:
            tables = {
                name: [context, width] for name, (_, width) in data.get("rope_tables", {}).items()
            }
            return {**data, "max_context": context, **({"rope_tables": tables} if tables else {})}
    return data


def _release_of_tag(name: str) -> str | None:
    """Return the release of a tag of Ollama's library, if it is a later one than the preset's."""
    tag, file_type = with_file_type(name.lower())
    if tag == "qwen3:4b" and file_type:
        return None  # the tag alone was moved to 2507: 'qwen3:4b-q8_0' is the first release
    return _OLLAMA_RELEASES.get(tag)


def of_size(size: str) -> list[str]:
    """Return the presets of a size, as '8B', by name."""
    found = [name for name in preset_names() if size.lower() in name.split("-")[1:]]
    return sorted(found, key=_by_size)


def hint(name: str) -> str:
    """Return the start of a tip about a name that no preset has: the presets that it may mean."""
    if len(name) > _LONGEST_FILE:
        return ""
    file = of_gguf_file(name)
    if file and file[1] in FILE_TYPES:
        return f"did you mean '{preset_of(file[0])}:{file[1]}'? "
    if file and file[1]:
        return (
            f"weights in {file[1]} are not known here; did you mean '{preset_of(file[0])}:q4_k_m'? "
        )
    several = of_size(name) if re.fullmatch(_SIZE, name) else starting_with(name)
    if len(several) > 1:
        return f"which one: {', '.join(several)}? "
    if several:
        return f"did you mean '{several[0]}'? "
    return _hint_at_similar(name)


def _hint_at_similar(name: str) -> str:
    """Return the start of a tip about a name that begins as no preset's does."""
    base = unquantized(name)
    if base:
        return f"did you mean 'attncalc fit {base[0]} --weights-dtype {base[1]}'? "
    size = re.search(_SIZE, name)
    if size:
        family = _spelled(name[: size.start()])  # llama2-7b for llama-2-13b, and not llama3.2-3b
        same = {*of_size(size[0])} & (family or {*preset_names()})
        return did_you_mean(name, same or family)
    if re.search(r"\d", name):
        from difflib import get_close_matches  # as in errors.py

        of_family = starting_with(re.sub(r"[-.\d]+$", "", name))  # llama5
        near = get_close_matches(name.lower(), of_family, 5, 0)
        if near:
            return f"the nearest: {', '.join(near)}; "
    return did_you_mean(name, [*preset_names(), *_more()])


def starting_with(name: str) -> list[str]:
    """Return the presets whose names have the words of `name`, or else start with them, the
    smallest first.
    """
    return sorted(_spelled(name), key=_by_size)


def _spelled(name: str) -> set[str]:
    """Return the presets with a name of the same words as `name`, or else with one that starts with
    them.
    """
    if not re.fullmatch(_FREE_NAME, name):
        return set()
    words = _name_words(name)
    known = _by_words()
    if words in known or not words:
        return known.get(words, set())
    found = set[str]().union(
        *(found for other, found in known.items() if other[: len(words)] == words)
    )
    return found & {*preset_names()} or found


@cache
def _by_words() -> dict[tuple[str, ...], set[str]]:
    """Return {words: presets that have a name of these words}.

    The names of a preset are its own, its title, and the last parts of its repositories, also with
    the size that the title has in parentheses: 'DeepSeek-R1 671B'. A distilled model is also named
    by its teacher, as in Ollama's library: 'deepseek-r1:14b', 'deepseek-r1:14b-qwen-distill'.
    """
    known: dict[tuple[str, ...], set[str]] = {}
    for preset in presets():
        size = re.search(r"\(([\d.]+[BMT])\)", preset.title)
        released = [repository.partition("/")[2] for repository in preset.repositories]
        names = [
            preset.name,
            preset.title,
            preset.title.partition(" (")[0],
            *released,
            *preset.tags,
        ]
        for release in released:
            names += _of_distilled(release)
        if size:
            names += [f"{name} {size[1]}" for name in released]
        for name in names:
            known.setdefault(_name_words(name), set()).add(preset.name)
    return known


def _of_distilled(release: str) -> list[str]:
    """Return the names of a distilled model after its teacher: 'DeepSeek-R1 14B'; [] for another
    model.
    """
    distilled = re.fullmatch(_DISTILLED, release)
    if distilled:
        return [distilled.expand(spelled) for spelled in (r"\1 \3", r"\1 \3 \2 distill")]
    return []


def _name_words(name: str) -> tuple[str, ...]:
    """Return the runs of letters and of digits: ('llama', '3', '1', '8', 'b') for
    'llama3.1:8b-instruct-q4_0'.
    """
    return tuple(word for word in _all_words(name) if word not in _TUNED)


def _all_words(name: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\d+|[a-z]+", with_file_type(name)[0].lower()))


def repository_of(name: str) -> str | None:
    """Return the repository of presets' sources whose last part is `name` in any case, or the first
    with its words.

    For example 'meta-llama/Llama-3.3-70B-Instruct' for 'llama3.3-70b', and Mistral Small 3.2's for
    'mistral-small-3.2'. None for a preset's own name, and if no repository has these words.
    """
    if name in preset_names() or name in _more() or "/" in name:
        return None
    if _release_of_tag(name):
        return _release_of_tag(name)
    known = _by_repository().get(name.lower())
    if known:
        return known[1]
    preset = preset_of(name)
    words = _name_words(name)
    found = _by_release().get((preset, words))
    if found:
        return found
    if not words:
        return None
    repositories = next((one.repositories for one in presets() if one.name == preset), ())
    longer = (
        one for one in repositories if _name_words(one.partition("/")[2])[: len(words)] == words
    )
    return next(longer, None)


def ollama_name(name: str) -> str | None:
    """Return a preset's name in Ollama's library, or None: 'llama3.3:70b', and 'deepseek-r1:14b' of
    a distilled model.

    The teacher's tag may be another model: 'deepseek-r1:8b' is made of Qwen3 8B, and not of Llama
    3.1 8B.
    """
    distilled = _of_distilled((repository_of(name) or "").rpartition("/")[2])
    if distilled:
        tag = distilled[0].lower().replace(" ", ":")
        if preset_of(tag) == preset_of(name):
            return tag
        return None
    size = re.fullmatch(r"([\w.-]+)-(\d+(?:\.\d+)?b(?:-a\d+b)?)", name)
    # llama3.3 of llama-3.3
    if size:
        return re.sub(r"^([a-z]+)-(?=\d)", r"\1", f"{size[1]}:{size[2]}")
    return None


@cache
def _by_release() -> dict[tuple[str | None, tuple[str, ...]], str]:
    """Return {(preset, words of a name of a release): the first repository of that name}."""
    found: dict[tuple[str | None, tuple[str, ...]], str] = {}
    for preset in presets():
        for repository in reversed(preset.repositories):
            release = repository.partition("/")[2]
            for name in (release, *_of_distilled(release)):
                found[preset.name, _name_words(name)] = repository
    return found


@cache
def _by_repository() -> dict[str, tuple[str, str]]:
    """Return {repository, or its last part, in lower case: (name of the preset, repository)}."""
    by_name = {}
    by_part = {}
    for preset in presets():
        for repository in preset.repositories:
            lower = repository.lower()
            by_name[lower] = (preset.name, repository)
            by_part[lower.partition("/")[2]] = (preset.name, repository)
    return by_part | by_name


def _by_size(name: str) -> list[str | float]:
    """Return a key by which 'llama2-7b' comes before 'llama2-70b', and 'qwen3-32b' before
    'qwen3.5-397b'.
    """
    return [
        float(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+(?:\.\d+)?)", name))
    ]


def _described(name: str, text: str) -> Preset:
    title = re.search(_TITLE, text)
    repositories = tuple(dict.fromkeys(re.findall(_REPOSITORY, text)))
    return Preset(
        name, title[1].strip("\"'") if title else name, repositories, tuple(re.findall(_TAG, text))
    )


def _file(name: str) -> Path:
    return _folder() / f"{name}.yaml"
