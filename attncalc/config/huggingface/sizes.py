"""The sizes of a model, and the names that classes have for them.

A config that has `dim` for a class that reads `hidden_size` must not be answered with the class's
default in silence.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from ...errors import AttncalcError
from ...units import truncate
from ..size_names import NAMES
from .architectures import letters_of
from .fields import Fields
from .formulas import names_in

# The keys of a model file whose fields a config must not omit all at once.
_REQUIRED = ("d_model", "n_layers", "n_heads")


def check_sizes(name: str, rules: Mapping[str, Any], fields: Fields, *, whole: bool) -> None:
    """Raise AttncalcError if the model's sizes would be the class's defaults although the config
    has other sizes.

    Args:
        name: The model_type, for the message.
        rules: The family's rules.
        fields: The fields of the language model.
        whole: Whether they are those of the whole config.json. A text_config may rely on its
            class's defaults: LLaVA-1.5 gives no size of its language model, which is LLaMA 7B.
    """
    others = [other for other in _sizes_in(fields.given) if not _is_read(other, rules, fields)]
    required = [*filter(None, (_own_names(rules, key, fields) for key in _REQUIRED))]
    if whole and not any(fields.given.keys() & names for names in required):
        inner = []
        for field, value in fields.given.items():
            if isinstance(value, Mapping) and len(_sizes_in(value)) > 1:
                inner.append(field)
        raise AttncalcError(
            f"{listed([names[0] for names in required])} are missing{_found(others, inner)}",
            f"a config.json of model_type {truncate(name)} has these fields; give the model's "
            "own file",
        )
    context = other_context(rules, fields)
    for other in others:
        own = _own_name_of(other, rules, fields)
        if (
            own
            and own not in fields.given
            and other != context
            and fields.given[other] not in (fields[own], _derived(own, fields))
        ):
            raise AttncalcError(
                f"{own} is missing, and {truncate(other)} {fields.given[other]} is not a field "
                f"of {truncate(name)}",
                f"rename {truncate(other)} to {own} if that is what it means",
            )
    _check_misspelt(rules, fields)


def other_context(rules: Mapping[str, Any], fields: Fields) -> str | None:
    """Return the name that a config has for its longest context instead of the class's own:
    max_sequence_length in the LLaMAs of GaLore and ReLoRA.

    None if the config gives the class's own, or if it changes other figures: the rows of a table of
    positions.
    """
    own = set(map(fields.own_name, names_in(rules.get("max_context")))) & _contexts()
    other_rules = {key: rule for key, rule in rules.items() if key != "max_context"}
    if not own or own & (fields.given.keys() | _used_names(other_rules, fields)):
        return None
    given = [name for name in _sizes_in(fields.given) if name in _contexts()]
    return min(given, key=fields.given.__getitem__, default=None)


def _check_misspelt(rules: Mapping[str, Any], fields: Fields) -> None:
    """Raise AttncalcError if a key is nearly the name of a field that the rules use and the config
    omits.

    transformers ignores num_attetion_heads, and takes its default number of heads. A name that
    starts with an underscore is a private one of old versions (_num_labels).
    """
    omitted = sorted(_used_names(rules, fields) - fields.given.keys())
    for other, value in fields.given.items():
        own = next((own for own in omitted if _is_misspelt(other, own)), None)
        if own is None or other[0] == "_" or _is_read(other, rules, fields):
            continue
        if value not in (fields[own], _derived(own, fields)):
            raise AttncalcError(
                f"{own} is missing; {other} is not a field", f"rename {other} to {own}"
            )


def _is_misspelt(name: str, own: str) -> bool:
    """Return whether a name has the letters of another, or differs from its second letter on in one
    edit.

    q_lora_rank is no misspelt o_lora_rank.
    """
    if name[:1].lower() != own[0] or abs(len(name) - len(own)) > own.count("_") + 1:
        return False
    short, long = sorted((name, own), key=len)
    i = next(
        (i for i, pair in enumerate(zip(short, long, strict=False)) if len(set(pair)) > 1),
        len(short),
    )
    edits = [
        (short[i:], long[i + 1 :]),  # a letter too many
        (short[i + 1 :], long[i + 1 :]),  # a wrong one
        (short[i : i + 2][::-1] + short[i + 2 :], long[i:]),  # two that are swapped
    ]
    return letters_of(name) == letters_of(own) or any(one == other for one, other in edits)


def _found(others: list[str], inner: list[str]) -> str:
    found = [truncate(other) for other in (others or inner)[:8]]
    if found:
        return f"; the config has {listed(found)} instead"
    return ""


def omitted_sizes(rules: Mapping[str, Any], fields: Fields) -> list[str]:
    """Return the sizes that formulas have used, that the config omits, and for which the class has
    a number.
    """
    omitted = sorted(fields.looked_up - fields.given.keys())
    if other_context(rules, fields):
        omitted = [name for name in omitted if name not in _contexts()]
    return [name for name in filter(is_name_of_size, omitted) if _is_size(fields[name])]


def repeats_own_size(name: str, rules: Mapping[str, Any], fields: Fields) -> bool:
    """Return whether a field repeats the value of the class's own size, as d_model 64 beside
    hidden_size 64.
    """
    own = _own_name_of(name, rules, fields)
    return own is not None and fields.given[name] in (fields[own], _derived(own, fields))


def head_dim_of(fields: Fields) -> Any:
    """Return the width of a head that a config gives, or that follows from its hidden size; None if
    neither.
    """
    hidden = fields["hidden_size"]
    heads = fields["num_attention_heads"]
    if fields.is_of_class("head_dim") and fields["head_dim"] is not None:
        return fields["head_dim"]
    if _is_size(hidden) and _is_size(heads):
        return hidden // heads
    return None


def _derived(name: str, fields: Fields) -> Any:
    """Return the size that classes derive from others if a config omits it, or None.

    A class with a number as its default derives none.
    """
    if fields[name] is not None:
        return None
    hidden = fields["hidden_size"]
    four_times = 4 * hidden if _is_size(hidden) else None
    derived = {
        "head_dim": head_dim_of(fields),
        "num_key_value_heads": fields["num_attention_heads"],
        "n_inner": four_times,  # GPT-2
        "ffn_hidden_size": four_times,  # Falcon
    }
    return derived.get(name)


def is_name_of_size(name: str) -> bool:
    """Return whether some class has a size of that name."""
    return bool(names_of_size(name))


def _contexts() -> frozenset[str]:
    """Return the names of the longest context."""
    return names_of_size("max_position_embeddings")


@cache
def names_of_size(name: str) -> frozenset[str]:
    """Return all names of the size that `name` is a name of; none if it is no name of a size."""
    return next((names for names in NAMES if name in names), frozenset())


def _is_read(name: str, rules: Mapping[str, Any], fields: Fields) -> bool:
    return fields.is_of_class(name) or name in _used_names(rules, fields)


def _own_name_of(name: str, rules: Mapping[str, Any], fields: Fields) -> str | None:
    """Return the class's own name of the size that `name` is another name of, or None if it has no
    such size.

    A name that the config gives goes before one that it omits.
    """
    names = {fields.own_name(other) for other in names_of_size(name)} - {name}
    if fields.is_known_class:
        own = sorted(filter(fields.is_of_class, names))
    else:
        own = sorted(names & _used_names(rules, fields))
    given = [n for n in own if n in fields.given]
    equal = [n for n in given if fields.given[n] == fields.given.get(name)]
    return next(iter([*equal, *given, *own]), None)


def _used_names(rules: Mapping[str, Any], fields: Fields) -> set[str]:
    """Return the fields that the rules use, under their own names.

    Rules of kinds that a family only inherits, such as those of experts for a family without any,
    do not count. A kind is used if a formula names it, or a list in the config.
    """
    formulas = str(rules.get("kind", ""))
    listed = set[str]()
    for value in fields.given.values():
        if isinstance(value, list):
            listed |= set(map(str, value))
    used = {}
    for name, rule in (rules.get("kinds") or {}).items():
        if name in formulas or name in listed:
            used[name] = rule
    return set(map(fields.own_name, names_in({**rules, "kinds": used})))


def _own_names(rules: Mapping[str, Any], key: str, fields: Fields) -> list[str]:
    """Return the fields that give a key of the model file, in any kind of layer."""
    kinds = (rules.get("kinds") or {}).values()
    names = set[str]()
    for table in (rules, *kinds):
        names |= set(map(fields.own_name, names_in((table or {}).get(key))))
    return sorted(filter(is_name_of_size, names)) or sorted(names)


def _sizes_in(config: Mapping[str, Any]) -> list[str]:
    """Return the fields of a config that have the name and the value of a size."""
    named = [name for name in config if is_name_of_size(str(name))]
    return [name for name in named if _is_size(config[name])]


def _is_size(value: Any) -> bool:
    return type(value) is int and value > 0


def listed(words: list[str]) -> str:
    """Return 'a', 'a and b' or 'a, b and c'."""
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} and {words[-1]}"
