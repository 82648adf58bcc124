"""Convert a config.json to a Document: compute the rules of its family, and reject fields that no
rule uses.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from ...errors import AttncalcError, NotSupportedError
from ...model import Tower
from ...units import truncate
from ..document import Document, renamed
from ..keys import is_stack_key
from .architectures import is_class_of, is_draft_class, model_type_of_class
from .family import (
    RULE_KEYS,
    SUPPORTED_TIP,
    Family,
    UnsupportedModelTypeError,
    architecture,
    as_list,
    family_of,
    has_rules_of_class,
    model_type_of,
    supported_model_types,
)
from .fields import transformers_version, written
from .formulas import names_in, outer_names_in, value_of, value_of_key
from .layers import is_rule_of_layer, pattern_of_layers
from .quantized.released import Released, released, scheme_in_name, to_keys
from .rope import rope_tables, scaled_context
from .sizes import check_sizes, listed, omitted_sizes, other_context
from .towers import FIELDS as TOWERS
from .towers import towers
from .unused_fields import structural_fields, unused_fields
from .values import check_values, check_zeros

_FIELD_TIP = (
    "correct the config, or write a preset: 'attncalc presets show llama2-70b' prints an example"
)

# A requirement that fields are given: '=vocab_size is not None', '=None not in (vocab_size, bias)'.
_NEEDED = re.compile(r"=(None not in \((?=.*\)))?(?P<names>[\w, ]+)(\)| is not None)")

# Characters of a list of fields; a config.json has some dozens of them.
_LONGEST_LIST = 2000

# Endings of the names of classes with a language model's head.
_LM_HEADS = ("ForCausalLM", "LMHeadModel", "MTModel", "ForConditionalGeneration")


def convert_config(
    config: Mapping[str, Any],
    file: str,
    *,
    title: str = "",
    assume_grouped: bool = False,
    names: Mapping[str, str] | None = None,
) -> Document:
    """Return the model file that describes the same model as a config.json.

    Args:
        title: What the model is called if the config does not name it.
        assume_grouped: Read an unknown model_type as plain grouped attention.
        names: {field: what it is called in the user's file}, if the config was made of another
            format.

    Raises AttncalcError, with the field and its value, if the model_type is not supported, a field
    is missing or contradicts another, or a field changes the figures in a way that is not modelled.
    """
    try:
        family = family_of(config, assume_grouped)
        names = {**family.fields.names_in_file(), **(names or {})}
        data = _Reader(config, family).keys(file, title)
        if not family.assumed:
            _check_class(config, data, file)
        named = dict(family.encoder_fields.origins) if family.encoder_fields else {}
        named |= family.fields.origins
        origins = {}
        for key, values in named.items():
            origins[key] = {value: renamed(text, names) for value, text in values.items()}
        return Document(file, data, {}, origins)
    except UnsupportedModelTypeError as error:
        is_draft = is_draft_class(architecture(config))
        if not assume_grouped and not is_draft and _reads_as_grouped(config):
            hint = "; --assume-grouped reads it as plain grouped attention"
        else:
            hint = ""
        raise type(error)(f"{file}: {error.message}", error.tip + hint) from None
    except AttncalcError as error:
        raise type(error)(
            f"{file}: {renamed(error.message, names or {})}", renamed(error.tip, names or {})
        ) from None


def _check_class(config: Mapping[str, Any], data: Mapping[str, Any], file: str) -> None:
    """Raise AttncalcError if `architectures` names another model's class, and only one of the two
    has experts.

    transformers chooses the class by model_type, and vLLM by architectures: EAGLE's draft for
    Mixtral has model_type mixtral and one layer of LlamaForCausalLM, without experts.
    """
    named = data["model_type"]
    class_name = architecture(config)
    if is_class_of(class_name, named):
        return
    other = model_type_of_class(class_name, supported_model_types())
    if other is None:
        return
    as_other = {**config, "model_type": other}
    try:
        has_experts = _has_experts(_Reader(as_other, family_of(as_other)).keys(file, ""))
    except AttncalcError:
        return
    if has_experts != _has_experts(data):
        raise AttncalcError(
            f"model_type {truncate(named)} and architectures {truncate(class_name)} contradict "
            "each other",
            f"correct one of them: {truncate(class_name)} is a class of model_type {other}",
        )


def _has_experts(data: Mapping[str, Any]) -> bool:
    return any("n_experts" in keys for keys in (data, *data.get("layer_kinds", {}).values()))


def _reads_as_grouped(config: Mapping[str, Any]) -> bool:
    from ..build import build_model  # both are needed for an error only
    from ..schema import check

    try:
        document = convert_config(config, "", assume_grouped=True)
        check(document)
        build_model(document, "")
    except AttncalcError:
        return False
    return True


class _Reader:
    """Reads a config by the rules of its family."""

    def __init__(self, config: Mapping[str, Any], family: Family) -> None:
        self.config = config
        self.family = family
        self.rules = family.rules
        self.fields = family.fields
        self.given = self.fields.outer_or_self.given
        self.class_name = architecture(self.given)

    @cached_property
    def released(self) -> Released | None:
        return released(self.given, self.fields.given)

    @cached_property
    def towers(self) -> list[Tower]:
        return list(towers(self.fields))

    def keys(self, file: str, title: str) -> dict[str, Any]:
        family = self.family
        data = {"title": self._title(title), **self._model_keys()}
        if not family.assumed:
            data["model_type"] = str(model_type_of(self.config))
        longest = self._context_of_other_name(data.get("max_context"))
        if isinstance(longest, int) and not data.get("learned_positions"):
            data["max_context"] = scaled_context(family.name, self.fields.given, longest)
        data.update(self._keys_of_engines())
        # Windows has backslashes
        name = file.replace("\\", "/").removesuffix("/config.json").rpartition("/")[2]
        scheme = scheme_in_name(" ".join(self._names(name, title)))
        if scheme and not self.released:
            data["unread_quantization"] = (
                f"its name says {scheme}, and the config.json has no quantization_config"
            )
            data["notes"] = [*data.get("notes", ()), _unread_note(data["unread_quantization"])]
        if family.assumed:
            subject = "a config without a model_type"
            if family.name:
                subject = f"model_type '{truncate(family.name)}'"
            unused = ", ".join(structural_fields(self.rules, self.fields))
            ignored = f" Ignored fields: {truncate(unused, _LONGEST_LIST)}." if unused else ""
            data["assumed"] = f"{subject} read as plain grouped attention.{ignored}"
            return data
        rejected, ignored_fields = unused_fields(self.rules, self.fields, data["n_layers"])
        if family.encoder_fields:
            of_encoder = unused_fields(
                self.rules, family.encoder_fields, data["encoder"]["n_layers"]
            )
            rejected = rejected + of_encoder.rejected
            ignored_fields = ignored_fields + of_encoder.ignored
        if rejected:
            fields = self.fields
            if family.encoder_fields and rejected[0] not in self.fields.given:
                fields = family.encoder_fields
            value = written(fields.given[rejected[0]])
            raise NotSupportedError(
                f"{rejected[0]} {value} is not supported for {family.name}", _FIELD_TIP
            )
        notes = [*data.get("notes", ()), *self._reading_notes(ignored_fields)]
        return {**data, "notes": notes} if notes else data

    def _context_of_other_name(self, default: int | None) -> int | None:
        """Return the longest context that the config gives under a name that its class does not
        have, unless the class's default is shorter.

        transformers ignores it, and vLLM (derive_max_model_len_and_key) takes the shorter of both.
        """
        name = other_context(self.rules, self.fields)
        if name is None or self.family.assumed:
            return default
        context: int = self.fields.given[name]
        if default is not None and default <= context:
            self.fields.remarks.append(
                f"The context is the default of {self.family.name}, {default}; {truncate(name)} "
                f"{context} is not a field of its class."
            )
            return default
        self.fields.remarks.append(
            f"The context is {truncate(name)} {context}, as in vLLM; transformers' "
            f"{self.family.name} has no such field."
        )
        return context

    def _own_name(self) -> str:
        return str(self.given.get("_name_or_path") or "")

    def _names(self, *names: str) -> list[str]:
        """Return the names of a checkpoint, with the config's own unless that is of one by
        bitsandbytes.

        Those always have a quantization_config. A config without one is of merged weights, and
        names what they came from.
        """
        own = self._own_name()
        others = [name for name in names if not own.endswith(name)]
        if re.search(r"bnb|bitsandbytes", own, re.IGNORECASE):
            return others
        return [*others, own]

    def _title(self, title: str) -> str:
        """Return the model's name: the config's own if it is org/name and no path on somebody's
        machine.
        """
        name = self._own_name()
        is_repo = name.count("/") == 1 and not name.startswith((".", "/"))
        if is_repo:
            return truncate(name)
        return title or self.family.name or "a model"

    def _model_keys(self) -> dict[str, Any]:
        """Return the keys of the model file, except the title and those from
        `quantization_config`.
        """
        family = self.family
        rules = self.rules
        fields = self.fields
        check_values(fields, names_in(rules))
        check_values(fields.outer_or_self, outer_names_in(rules))
        if not family.assumed:
            check_sizes(family.name, rules, fields, whole=family.is_whole)
        _check_requirements(family)
        values = self._values_outside_layers()
        source = f"its config.json, read as transformers {transformers_version()}'s {family.name}"
        if family.assumed:
            subject = f"model_type '{truncate(family.name)}'" if family.name else "class"
            source = f"its config.json, whose {subject} is not known"
        data: dict[str, Any] = {
            "sources": [source],
            **{key: value for key, value in values.items() if is_stack_key(key)},
            **pattern_of_layers(rules, fields, values["n_layers"]),
        }
        if "encoder" in rules:
            data["encoder"] = self._encoder_keys()
            _move_to_layer_kinds(data, data["encoder"])
            own_params = value_of(
                rules["encoder"].get("extra_params", {}), family.encoder_fields or fields
            )
            values["extra_params"] = {**(values.get("extra_params") or {}), **own_params}
        for key, value in values.items():
            # a table of tensors is without those that the config leaves out
            if not is_stack_key(key):
                is_table = isinstance(value, Mapping)
                if is_table:
                    data[key] = {name: item for name, item in value.items() if item is not None}
                else:
                    data[key] = value
        for used in filter(None, (fields, family.encoder_fields)):
            check_zeros(used, rules)
        of_family = (value_of(note, fields) for note in as_list(rules.get("note")))
        data["notes"] = [*(str(note) for note in of_family if note), *self.general_notes()]
        data["dtype"] = self._dtype()
        return {key: value for key, value in data.items() if value not in (None, [], {})}

    def _values_outside_layers(self) -> dict[str, Any]:
        """Return the values of all rules but those of layers, as the class in `architectures`
        changes them.
        """
        values = {}
        for key, rule in self.rules.items():
            if key not in RULE_KEYS and not is_rule_of_layer(key):
                values[key] = value_of_key(key, rule, self.fields)
        for key, value in self._head_values().items():
            is_table = isinstance(value, Mapping) and isinstance(values.get(key), Mapping)
            values[key] = {**values[key], **value} if is_table else value
        return values

    def _head_values(self) -> dict[str, Any]:
        """Return the keys that the class in `architectures` changes, because it has another head or
        none.
        """
        rules = self.rules
        class_name = self.class_name
        for ending, keys in rules.get("heads", {}).items():
            if class_name.endswith(ending):
                return {key: value_of(rule, self.fields) for key, rule in keys.items()}
        headless = (
            class_name.endswith("Model")
            and not class_name.endswith(_LM_HEADS)
            and rules.get("head") != "pooler"
        )
        if headless or _has_unknown_head(rules, class_name):
            return {"head": "none", "tied_embeddings": None, "head_bias": None}
        return {}

    def _encoder_keys(self) -> dict[str, Any]:
        """Return the keys of the encoder.

        An encoder with a config of its own has all rules applied to it. Otherwise the rules under
        `encoder` give what differs from the decoder.
        """
        all_rules = {**self.rules, **self.rules["encoder"]}
        stack_rules = self.rules["encoder"]
        fields = self.fields
        if self.family.encoder_fields:
            stack_rules = all_rules
            fields = self.family.encoder_fields
            check_values(fields, names_in(self.rules))
        values = {}
        for key, rule in stack_rules.items():
            if key not in RULE_KEYS and is_stack_key(key) and not is_rule_of_layer(key):
                values[key] = value_of_key(key, rule, fields)
        pattern = pattern_of_layers(all_rules, fields, values["n_layers"])
        return {key: value for key, value in values.items() if value is not None} | pattern

    def _dtype(self) -> str:
        """Return the dtype of the released weights; bf16 if the config names none."""
        name = self._named_dtype()
        name = "bfloat16" if name in (None, "auto") else str(name).removeprefix("torch.")
        known = {"float16": "fp16", "float32": "fp32", "bfloat16": "bf16"}
        if name not in known:
            raise NotSupportedError(
                f"dtype '{truncate(name)}' is not supported", f"known: {', '.join(known)}"
            )
        return known[name]

    def _named_dtype(self) -> Any:
        """Return the dtype that the config names, or None; a wrapper's goes before its
        text_config's.
        """
        for given in (self.given, self.fields.given):
            for name in ("dtype", "torch_dtype"):
                if given.get(name) is not None:
                    return given[name]
        return None

    def _keys_of_engines(self) -> dict[str, Any]:
        """Return the keys of what engines hold beside the language model's parameters, and of
        quantized matrices.
        """
        model_type = str(self.fields.given.get("model_type") or self.family.name)
        of_quantization = dict(to_keys(self.released)) if self.released else {}
        keys: dict[str, dict[str, Any]] = {
            "towers": {},
            "tower_items": {},
            "tower_attention": {},
            "rope_tables": {},
        }
        for tower in self.towers:
            keys["towers"][tower.name] = [tower.params, tower.split]
            if tower.item:
                keys["tower_items"][tower.name] = tower.item._asdict()
            if tower.attention:
                sizes = tower.attention._asdict()
                keys["tower_attention"][tower.name] = {k: size for k, size in sizes.items() if size}
        for table in rope_tables(model_type, self.fields):
            keys["rope_tables"][table.name] = [table.rows, table.width]
        return of_quantization | {key: tables for key, tables in keys.items() if tables}

    def _reading_notes(self, ignored: Sequence[str]) -> Iterator[str]:
        """Yield the notes about fields that are missing, that are ignored, or that contradict each
        other.
        """
        family = self.family
        class_name = self.rules.get("class", family.name)
        if self.config.get("model_type") is None:
            yield (
                f"The config names no model_type; {truncate(architecture(self.config))} is read "
                f"as {family.name}."
            )
        yield from self._class_notes()
        for fields in (self.fields, family.encoder_fields):
            if fields:
                yield from fields.remarks
        omitted = omitted_sizes(self.rules, self.fields)
        if omitted:
            names = truncate(", ".join(omitted), _LONGEST_LIST)
            yield f"The config omits {names}; the defaults of transformers' {class_name} are used."
        if ignored:
            names = truncate(", ".join(ignored), _LONGEST_LIST)
            yield f"Fields that transformers' {class_name} does not have are ignored: {names}."

    def _class_notes(self) -> Iterator[str]:
        """Yield the note about a class in `architectures` that is none of its model_type.

        transformers reads the model_type, and vLLM the class.
        """
        named = self.config.get("model_type")
        class_name = architecture(self.config)
        if named is None or not class_name or self.rules.get("draft"):
            return
        if is_class_of(class_name, named) or has_rules_of_class(named, class_name):
            return
        other = model_type_of_class(class_name, supported_model_types())
        if other is None:
            yield (
                f"architectures names {truncate(class_name)}, which is not known as a class of "
                f"{named}; the figures are those of {named}."
            )
        else:
            yield (
                f"architectures names {truncate(class_name)}, a class of {other}; the figures are "
                f"those of {named}, the model_type."
            )

    def general_notes(self) -> Iterator[str]:
        """Yield the notes that do not depend on the family."""
        if self._named_dtype() is None:
            yield "The config names no dtype; bf16 is assumed."
        mtp_layers = self.fields.given.get("num_nextn_predict_layers")
        if mtp_layers:
            yield f"Multi-token prediction layers ({truncate(mtp_layers)}) are not counted."
        found = self.released
        if found and found.experts_dtype:
            yield f"Experts are released in {found.experts_dtype}."
        elif found and found.weights_dtype:
            yield f"Weights are released in {found.weights_dtype}."
        elif found:
            yield _unread_note(found.unread)
        if self.rules.get("mask") == "bidirectional" and not self.class_name:
            yield (
                "The config names no class in architectures; the model without a task head is "
                "counted."
            )
        if _has_unknown_head(self.rules, self.class_name):
            yield f"The head of {truncate(self.class_name)} is not counted."
        counted = sorted(tower.name for tower in self.towers)
        present = [name for name, field in TOWERS.items() if self.given.get(field)]
        uncounted = [name for name in present if name not in counted]
        if uncounted:
            yield f"The {' and '.join(uncounted)} tower is not counted."
        if counted:
            yield (
                f"The {' and '.join(counted)} tower is not counted, except in the size of the "
                "weights."
            )


def _check_requirements(family: Family) -> None:
    """Raise AttncalcError, with the fields' values, if one of the family's `require` formulas does
    not hold.
    """
    fields = family.fields
    for rule in family.rules.get("require", ()):
        formula = rule
        reason = ""
        if isinstance(rule, Mapping):
            formula = rule["formula"]
            reason = f": {rule['reason']}"
        if value_of(formula, fields):
            continue
        needed = _NEEDED.fullmatch(str(formula))
        if needed:
            missing = [name for name in re.findall(r"\w+", needed["names"]) if fields[name] is None]
            verb = "is" if len(missing) == 1 else "are"
            raise AttncalcError(
                f"{listed(missing)} {verb} missing",
                f"configs of {family.name} have no defaults: add what is missing",
            )
        values = {name: fields[name] for name in sorted(names_in(formula))}
        values |= {name: fields.outer_or_self[name] for name in sorted(outer_names_in(formula))}
        written_values = ", ".join(f"{name} {written(value)}" for name, value in values.items())
        if len(values) == 1:
            subject = written_values
        else:
            subject = f"the combination of {written_values}"
        tip = SUPPORTED_TIP if reason else _FIELD_TIP
        raise NotSupportedError(f"{subject} is not supported for {family.name}{reason}", tip)


def _move_to_layer_kinds(decoder: dict[str, Any], encoder: Mapping[str, Any]) -> None:
    """Move the decoder's keys of layers that the encoder must not inherit into the decoder's
    layer_kinds.

    An encoder inherits every key that it does not give itself, but for layer_kinds.
    """
    own = set(encoder)
    encoder_kinds = encoder.get("layer_kinds", {}).values()
    if encoder_kinds:
        own |= set.intersection(*map(set, encoder_kinds))
    of_layers = [key for key in decoder if is_rule_of_layer(key)]
    inherited = [key for key in of_layers if key not in own]
    if inherited:
        decoder.setdefault("pattern", ["layers"])
        moved = {key: decoder.pop(key) for key in inherited}
        kinds = decoder.get("layer_kinds", {"layers": {}})
        decoder["layer_kinds"] = {kind: {**moved, **keys} for kind, keys in kinds.items()}


def _has_unknown_head(rules: Mapping[str, Any], class_name: str) -> bool:
    """Return whether a class has a head that is neither a language model's nor one of the family's
    `heads`.
    """
    is_base = class_name.endswith("Model") and not re.search("For[A-Z]", class_name)
    return (
        bool(class_name)
        and not is_base
        and not class_name.endswith((*rules.get("heads", ()), *_LM_HEADS))
    )


def _unread_note(unread: str) -> str:
    return f"The quantization of the weights is not read: {unread}. Sizes assume the dtype shown."
