"""Fields of a quantization_config: bounded numbers, lists of modules, and patterns that are safe to
match.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....quantization import Scheme, pattern_problem

# The most names that a list of modules may have; releases list some hundreds.
MAX_MODULES = 50_000
# The longest name or pattern of a module.
MAX_NAME = 300
# The most schemes that a checkpoint may have; releases with mixed bits have fewer than ten.
MAX_SCHEMES = 64

# The fields of a quantization_config.
Config = Mapping[str, Any]
# The schemes of a config, and its list of modules that are not quantized.
Read = tuple[Sequence[Scheme], Any]


class UnreadError(Exception):
    """A scheme that is not known; its text names it."""


def section(found: Config, key: str) -> Config:
    """Return a field that is an object; an empty one if it is missing or something else."""
    value = found.get(key)
    if isinstance(value, Mapping):
        return value
    return {}


def size(found: Config, key: str, default: int | None = None) -> int:
    """Return a field that is a whole number from -1 to a million. Raises UnreadError for others."""
    value = found.get(key, default)
    if value is None and default is not None:
        value = default
    if type(value) is not int or not -1 <= value <= 10**6:
        raise UnreadError(f"no {key}" if value is None else f"{key} {value!r}")
    return value


def bits(found: Config, known: Sequence[int], key: str = "bits") -> int:
    """Return the bits of an element. Raises UnreadError unless they are among the `known` ones."""
    value = size(found, key, 4)
    if value not in known:
        raise UnreadError(f"{value} bits")
    return value


def average_bits(found: Config, key: str) -> tuple[int, int]:
    """Return average bits as (bits, elements) in whole numbers: (465, 100) for 4.65. Raises
    UnreadError for others.
    """
    value = found.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.5 <= value <= 16:
        raise UnreadError(f"no {key}" if value is None else f"{key} {value!r}")
    return round(value * 10_000), 10_000


def block(value: Any) -> tuple[int, int]:
    """Return (outputs, inputs) of a block that has one scale. Raises UnreadError for other
    values.
    """
    if (
        not isinstance(value, Sequence)
        or len(value) != 2
        or not all(type(n) is int and 0 < n <= 65536 for n in value)
    ):
        raise UnreadError(f"a block of {value!r}")
    return value[0], value[1]


def modules(listed: Any) -> tuple[str, ...]:
    """Return a list of modules, bounded and with safe patterns. Raises UnreadError for other
    values.
    """
    if listed is None:
        return ()
    if isinstance(listed, str):
        listed = [listed]
    if not isinstance(listed, Sequence) or len(listed) > MAX_MODULES:
        raise UnreadError("its list of modules")
    names = tuple(dict.fromkeys(str(item) for item in listed))
    for name in names:
        if len(name) > MAX_NAME:
            raise UnreadError("a module's name that is too long")
    problem = pattern_problem(names)
    if problem:
        raise UnreadError(problem)
    return names


def checked(schemes: Sequence[Scheme]) -> tuple[Scheme, ...]:
    """Return the schemes with checked targets. Raises UnreadError if there is none."""
    if not schemes or len(schemes) > MAX_SCHEMES:
        raise UnreadError("no scheme, or too many")
    return tuple(scheme._replace(targets=modules(scheme.targets)) for scheme in schemes)


def by_module(
    entries: Mapping[str, Any], scheme_of: Callable[[Any], Scheme | None]
) -> tuple[list[Scheme], list[str]]:
    """Return the schemes of {module: its entry}, each distinct one once with its modules as
    targets.

    The second list are the modules whose entries have no scheme.
    """
    names: dict[Scheme, list[str]] = {}
    ignored: list[str] = []
    for name, entry in entries.items():
        scheme = scheme_of(entry)
        if scheme is None:
            modules_of_scheme = ignored
        else:
            modules_of_scheme = names.setdefault(scheme._replace(targets=()), [])
        modules_of_scheme.append(str(name))
    return [
        scheme._replace(targets=tuple(of_scheme)) for scheme, of_scheme in names.items()
    ], ignored


def integer(n_bits: int, **fields: Any) -> Scheme:
    """Return a scheme of integers for weights alone; those of up to 4 bits are called int4, others
    int8.
    """
    return Scheme("int4" if n_bits <= 4 else "int8", n_bits, **{"weight_only": True, **fields})
