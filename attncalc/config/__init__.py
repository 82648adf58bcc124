"""From a model's name or path to its ModelSpec.

A model is a preset's name, a path to a model file, config.json or GGUF file, a folder with one, '-'
for standard input, or org/name on the Hugging Face hub. From Python it may also be a dict with the
fields of a config.json, or a config object of transformers.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AttncalcError, NetworkError, NoSuchModelError, Tip
from ..model import ModelSpec
from ..records import NamedTuple
from ..units import truncate
from .build import build_model
from .document import Document
from .plain import ConfigObject
from .presets import (
    compiled_preset,
    hint,
    of_release,
    preset_config,
    preset_names,
    preset_of,
    preset_text,
    unquantized,
)
from .source import CONFIG, DOCUMENTS, LIMIT, OTHER_LAYOUTS, PARAMS, Source, repository_source
from .user_files import open_file, read_standard_input

if TYPE_CHECKING:
    from ..checkpoint import CheckpointWeights
    from .checkpoints import Checkpoint
    from .folder import Folder
    from .hub import Repository

# What `load` takes as a model.
ModelLike = str | os.PathLike[str] | Mapping[str, Any] | ConfigObject | ModelSpec

# {file beside the config.json that describes the quantization: quant_method}; AutoGPTQ's and
# AutoAWQ's are old.
_QUANTIZATION_FILES = {
    "hf_quant_config.json": "modelopt",
    "quantize_config.json": "gptq",
    "quant_config.json": "awq",
}

_TIP = Tip(
    "'attncalc presets' lists them all; a path to a .yaml or config.json works too",
    page="The list of this field has them all; or drop a config.json, GGUF or YAML file here",
    python="attncalc.preset_names() lists them all; a path to a .yaml or config.json works too",
)
_FILE_TIP = Tip(
    "a model is a config.json, a .gguf or a .yaml file: 'attncalc presets show gpt2' prints one",
    page="a model is a config.json, a .gguf or a .yaml file",
)
_JSON_TIP = "a config.json is one JSON object, as transformers' save_pretrained writes it"


class _ModelFile(NamedTuple):
    """A model file or config.json, parsed and checked."""

    name: str  # what the model is called on screens
    document: Document
    # The fields of the config.json that the document was made from; None if it was a model file
    config: dict[str, Any] | None
    # The folder or repository that was named instead of a file, whose weights are read too
    folder: Folder | None = None
    stored: CheckpointWeights | None = None  # the weights of a GGUF file

    def spec(self) -> ModelSpec:
        """Return the model, with the weights that its folder holds. Raises AttncalcError if
        something contradicts.
        """
        model = build_model(self.document, self.name)
        stored = self.stored
        if self.folder:
            from .safetensors import stored_weights

            stored = stored_weights(self.folder, model.main.n_layers)
        if stored:
            return dataclasses.replace(model, stored=stored)
        return model


def load(model: ModelLike, *, assume_grouped: bool = False) -> ModelSpec:
    """Return the model called `model`.

    Args:
        model: A preset's name, a path to a model file, config.json or GGUF file, a folder with one,
            '-' for standard input, or org/name on the Hugging Face hub. Or the fields of a
            config.json or of a model file as a dict, or a PretrainedConfig of transformers. A
            ModelSpec is returned unchanged.
        assume_grouped: Read a config.json of an unknown model_type as plain grouped attention, and
            note it.

    Raises AttncalcError if there is no such model, or its file is not valid; the message names the
    file and the line or field.
    """
    if isinstance(model, ModelSpec):
        return model
    if isinstance(model, str) and model in preset_names():
        return _built_in(model)
    if isinstance(model, str | os.PathLike):
        return _read(os.fspath(model), assume_grouped).spec()
    return _read_fields(model, assume_grouped).spec()


@cache
def _built_in(name: str) -> ModelSpec:
    """Return the preset of that name, which is read once: a program may name it in each of
    thousands of calls.
    """
    return _read(name, False).spec()


def load_with_config(model: str | os.PathLike[str]) -> tuple[ModelSpec, dict[str, Any] | None]:
    """Return the model, and the fields of the config.json that it was read from, or None if it was
    a model file.

    The file is read once, so that '-' works too. Of a repository whose model is built in, the
    config.json is read. That of a preset has the fields in which it differs from its class's
    defaults. Raises AttncalcError as `load` does.
    """
    name = os.fspath(model)
    model_file = _read(_config_of_repository(name) or name, False)
    preset = _preset_called(name) if model_file.config is None else None
    return model_file.spec(), preset_config(preset) if preset else model_file.config


def _config_of_repository(model: str) -> str | None:
    """Return 'org/name:config.json' for a repository whose model is built in; None for anything
    else.
    """
    from .hub import parse_repository

    repository = None if os.path.exists(model) else parse_repository(model)
    is_other_file = repository is not None and repository.file not in ("", CONFIG)
    if repository is None or is_other_file or preset_of(repository.name) is None:
        return None
    return str(repository._replace(file="config.json"))


def to_model_file(model: str | os.PathLike[str], *, assume_grouped: bool = False) -> str:
    """Return the config.json that `model` leads to as the YAML text of a preset.

    Raises AttncalcError if `model` leads to a model file already, or is not valid.
    """
    from .yaml import to_yaml

    model_file = _read(os.fspath(model), assume_grouped)
    file = model_file.document.file
    if model_file.config is None and model_file.stored is None:
        raise AttncalcError(
            f"{file} is already a model file", "give a config.json, a .gguf file or org/name"
        )
    build_model(model_file.document, model_file.name)
    data = dict(model_file.document.data)
    from .hub import parse_repository

    repository = None if os.path.exists(model) else parse_repository(os.fspath(model))
    if repository:
        # by its address the preset is found
        address = f"https://huggingface.co/{repository.name}"
        data["sources"] = [f"{address}: {source}" for source in data["sources"]]
    return to_yaml(data, file)


def _read(model: str, assume_grouped: bool) -> _ModelFile:
    """Return the parsed file that `model` leads to. Raises AttncalcError for an unknown key or a
    wrong type.
    """
    source = _locate(model)
    try:
        return _parsed(source, model, assume_grouped)
    except AttncalcError as error:
        if source.file.endswith(DOCUMENTS) or not re.search(
            ": not (?:JSON|YAML|a mapping)", error.message
        ):
            raise
        raise NoSuchModelError(
            f"{source.file} is neither a model nor an engine's log", _FILE_TIP
        ) from None


def _parsed(source: Source, model: str, assume_grouped: bool) -> _ModelFile:
    if source.preset is not None:
        return _ModelFile(
            source.name, Document(source.file, of_release(source.preset, model), {}), None
        )
    from .schema import check

    if source.gguf:
        from .gguf.model import read_document

        document, stored = read_document(source.gguf, source.name)
        check(document)
        return _ModelFile(source.name, document, None, stored=stored)

    config = _parse_config(source)
    if config is None:
        from .yaml import parse_document

        document = parse_document(source.content, source.file)
        base = base_of_recipe(document.data)
        if base:
            raise NoSuchModelError(
                f"{source.file} configures training, and has no sizes", f"its model is {base}"
            )
        if not document.data.keys() & {"d_model", "n_layers", "norm", "title"}:
            keys = truncate(", ".join(map(str, document.data)), 60)
            raise NoSuchModelError(
                f"{source.file} is no model file: its keys are {keys}", _FILE_TIP
            )
    else:
        document, config = _document_of_config(config, source, assume_grouped)
    check(document)
    if source.name != model and source.file == f"{source.name}.yaml":
        document = document._replace(data=of_release(document.data, model))
    return _ModelFile(source.name, document, config, source.folder)


def _read_fields(model: Mapping[str, Any] | ConfigObject, assume_grouped: bool) -> _ModelFile:
    from .plain import fields_of, label_of, name_of
    from .schema import check

    fields = fields_of(model)
    label = label_of(model)
    name = name_of(fields)
    if _is_model_file(fields):
        document = Document(label, fields, {})
        config = None
    else:
        document, config = _document_of_config(fields, Source(name, label), assume_grouped)
    check(document)
    return _ModelFile(name or str(fields.get("model_type") or label), document, config)


def _document_of_config(
    config: dict[str, Any], source: Source, assume_grouped: bool
) -> tuple[Document, dict[str, Any]]:
    """Return the model file of a config.json or params.json, and the fields of the config.json.

    Raises AttncalcError if it is neither.
    """
    from .huggingface import convert_config
    from .layouts import reject_other_layout
    from .params_json import convert_params, is_params_json

    reject_other_layout(config, source.file)
    config = _with_quantization_beside(config, source.beside)
    title = "" if source.file == "<stdin>" else source.name
    if is_params_json(config):
        return convert_params(config, source.file, title)
    return convert_config(config, source.file, title=title, assume_grouped=assume_grouped), config


def _parse_config(source: Source) -> dict[str, Any] | None:
    """Return the fields of a config.json, or None for a model file of attncalc's own, in YAML or in
    JSON.
    """
    if source.content.startswith(b"GGUF"):
        raise AttncalcError(
            f"{source.file}: a GGUF file can only be read from a disk", "give the path of the file"
        )
    if len(source.content) > LIMIT:
        raise AttncalcError(
            f"{source.file}: longer than {LIMIT:,} bytes", "a model file has a few dozen lines"
        )
    if not source.content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        from .layouts import reject_list

        reject_list(source.content, source.file)
        return None
    from .parse_json import parse_object

    data = parse_object(source.content, source.file, _JSON_TIP)
    if _is_model_file(data):
        return None
    return data


def base_of_recipe(data: Mapping[str, Any]) -> str | None:
    """Return the model that a configuration of Axolotl, LLaMA-Factory, TRL, torchtune, torchtitan,
    litgpt or Unsloth trains, or None.
    """
    base = data.get("base_model") or data.get("model_name_or_path")
    model = data.get("model")
    if isinstance(model, Mapping):
        base = _model_of_section(model) or base
    # Unsloth's, and LLaMA-Factory's v1
    elif isinstance(model, str) and any(key in data for key in ("training", "train_dataset")):
        base = model
    elif isinstance(data.get("train"), Mapping):  # litgpt's
        folder = data.get("checkpoint_dir") or data.get("model_name") or ""
        base = str(folder).removeprefix("checkpoints/") or base
    if isinstance(base, str):
        return truncate(base)
    return None


def _model_of_section(model: Mapping[str, Any]) -> str | None:
    """Return the model of torchtune's or torchtitan's section [model], or None."""
    component = str(model.get("_component_"))
    pattern = r"torchtune\.models\.(\w+)\.(?:q?lora_)?\1_(\d+(?:_\d)?b|mini)\w*"
    found = re.fullmatch(pattern, component)
    if found:
        size = found[2].upper().replace("_", ".").replace("MINI", "mini")
        return f"{found[1]}/{size}"
    if "name" in model and "flavor" in model:
        return f"{model['name']}/{model['flavor']}"
    return None


def _is_model_file(data: Mapping[str, Any]) -> bool:
    """Return whether these are the keys of a model file: no config.json has d_model and norm, or
    sources.
    """
    has_keys = "d_model" in data and ("norm" in data or "sources" in data)
    return has_keys and ("model_type" not in data or "title" in data)


def _with_quantization_beside(config: dict[str, Any], folder: Folder | None) -> dict[str, Any]:
    """Return the config with the quantization of a file beside it, if only that file has it.

    vLLM and SGLang read these files too. Raises AttncalcError if one is not a JSON object.
    """
    if folder is None or any(key in config for key in ("quantization_config", "quantization")):
        return config
    for name, method in _QUANTIZATION_FILES.items():
        content = folder.read(name, LIMIT)
        label = folder.label(name)
        if content is None:
            continue
        if len(content) > LIMIT:
            raise AttncalcError(f"{label}: longer than {LIMIT:,} bytes", "fetch it again")
        from .parse_json import parse_object

        return {
            **config,
            "quantization_config": {
                "quant_method": method,
                **parse_object(content, label, _JSON_TIP),
            },
        }
    return config


def _locate(model: str) -> Source:
    """Return what `model` leads to. Raises AttncalcError if it leads nowhere, or the file cannot be
    read.
    """
    if model == "-":
        return Source("stdin", "<stdin>", read_standard_input(LIMIT + 1))
    preset = _preset_called(model)
    if preset is not None:
        return _preset_source(preset)
    gguf = _gguf_source(model)
    if gguf:
        return gguf
    found = _path_and_name(model)
    if found is None:
        return _repository_source(model)
    path, name = found
    from .folder import LocalFolder

    beside = LocalFolder(path.parent)
    try:
        with open_file(path) as file:
            folder = beside if Path(model).is_dir() else None
            return Source(
                truncate(name),
                truncate(path, 200),
                file.read(LIMIT + 1),
                folder=folder,
                beside=beside,
            )
    except OSError as error:
        raise AttncalcError(
            f"{truncate(path)}: {(error.strerror or 'cannot be read').lower()}", "check the path"
        ) from None


def _preset_called(model: str) -> str | None:
    """Return the preset that `model` leads to: a file or folder hides a repository's, but not a
    preset's own name.
    """
    if model in preset_names() or not os.path.exists(model):
        return preset_of(model)
    return None


def _preset_source(preset: str) -> Source:
    data = compiled_preset(preset)
    content = b"" if data is not None else preset_text(preset).encode()
    return Source(preset, f"{preset}.yaml", content, preset=data)


def _checkpoint_source(preset: str, known: Checkpoint, *, is_read: bool = True) -> Source:
    """Return the preset as a known checkpoint stores it, which needs no network.

    `is_read` is as in `as_checkpoint`.
    """
    from .checkpoints import as_checkpoint
    from .yaml import parse_document

    file = f"{preset}.yaml"
    data = compiled_preset(preset) or parse_document(preset_text(preset).encode(), file).data
    return Source(preset, file, preset=as_checkpoint(data, known, is_read=is_read))


def _gguf_source(model: str) -> Source | None:
    """Return the GGUF files that the path `model` leads to; None if it leads to something else."""
    if model.endswith(DOCUMENTS) or not os.path.exists(model):
        return None
    from .gguf.files import local_gguf, local_sources, model_name

    path = local_gguf(model)
    if path is None:
        return None
    return Source(
        truncate(model_name(path.name)), truncate(path, 200), gguf=tuple(local_sources(path))
    )


def _path_and_name(model: str) -> tuple[Path, str] | None:
    """Return the file that the path `model` leads to, and the model's name; None if there is no
    such file.
    """
    path = Path(model)
    try:
        if not model:
            return None
        path.stat()  # path.exists() is false on Python 3.14 if the folder may not be read
        if path.is_dir():
            return _model_file_in(path), path.resolve().name
        if path.name in ("config.json", PARAMS):  # every model's file has this name
            return path, path.resolve().parent.name
        return path, path.stem
    except PermissionError:
        raise AttncalcError(f"{truncate(model)}: permission denied", "check the path") from None
    except (OSError, ValueError):  # there is no such file, or its name is too long or has a NUL
        return None


def _repository_source(model: str) -> Source:
    """Return the model of that name on the hub: built in, in the cache, or fetched.

    Raises AttncalcError if `model` is not the name of a repository, or there is none.
    """
    from .hub import cached_folder, is_address, parse_repository

    repository = parse_repository(model)
    if repository is None and is_address(model):
        raise AttncalcError(
            f"'{truncate(model, 120)}' is not the address of a model on the hub",
            "an address looks like https://huggingface.co/org/name; fetch other files, and give "
            "their path",
        )
    if repository is None:
        if model.startswith((".", "/", "~")):
            raise NoSuchModelError(
                f"no such file or folder: {truncate(model, 120)}", "check the path"
            )
        from .huggingface import unsupported_model_types

        name = model.lower().replace(".", "").replace("-", "_")
        reasons = [
            why for of, why in unsupported_model_types().items() if f"{name}_".startswith(f"{of}_")
        ]
        if reasons:
            raise NoSuchModelError(f"'{truncate(model)}' is not supported: {reasons[-1]}", _TIP)
        raise NoSuchModelError(
            f"no preset named '{truncate(model)}', and no such file", _TIP.after(hint(model))
        )
    whole = _with_own_config(model, repository)
    preset = preset_of(whole.name) if str(whole) == whole.name else None
    if preset is not None:
        return _preset_source(preset)
    from .checkpoints import of_checkpoint

    copy = of_checkpoint(str(whole))
    # files that are here have the sizes of their tensors
    if copy and cached_folder(repository) is None:
        return _checkpoint_source(*copy)
    return _fetched(model, repository, str(whole))


def _fetched(model: str, repository: Repository, whole: str) -> Source:
    """Return the model of a repository in the cache or on the hub; by its organisation's habit if
    the hub cannot be asked.

    Raises AttncalcError if there is none.
    """
    from .checkpoints import by_habit
    from .hub import is_address

    try:
        return repository_source(repository)
    except AttncalcError as error:
        habit = by_habit(whole)
        if habit and isinstance(error, NetworkError):
            return _checkpoint_source(*habit, is_read=False)
        if is_address(model):
            error.message = error.message.replace(f"{repository}:", f"{truncate(model, 120)}:")
        base = unquantized(repository.name)
        if base:
            tip = (
                f"the built-in {base[0]} has the same cache, and "
                f"'attncalc fit {base[0]} --weights-dtype {base[1]}' nearly its weights"
            )
            error.tip = f"{tip}; or {error.tip}" if error.tip else tip
        raise


def _with_own_config(model: str, repository: Repository) -> Repository:
    """Return the repository that `model` names; of the address of its config.json, the repository
    without a file.

    'org/name:config.json' keeps its file: it is read, also of a model that is built in.
    """
    if repository.file == CONFIG and not model.endswith(f":{CONFIG}"):
        return repository._replace(file="")
    return repository


def _model_file_in(folder: Path) -> Path:
    """Return a folder's config.json, or the only model file in it."""
    if (folder / "config.json").exists():
        return folder / "config.json"
    files = sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml"))
    if len(files) == 1:
        return files[0]
    for name in () if files else (PARAMS, *OTHER_LAYOUTS):
        if (folder / name).exists():
            return folder / name
    if files:
        contents = f"{len(files)} model files"
    else:
        contents = "no config.json and no model file"
    if any(folder.glob("*.json")):
        several = f": 'attncalc compare {truncate(folder)}/*.json' reads all"
    else:
        several = ""
    raise AttncalcError(
        f"{truncate(folder)}: the folder has {contents}",
        f"give the path of a .yaml or .json{several}",
    )


__all__ = ["ModelLike", "load", "load_with_config", "preset_names", "preset_text", "to_model_file"]
