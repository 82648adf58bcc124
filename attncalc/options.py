"""An option, declared once: as the annotation of a field of a TypedDict.

    class SizeOptions(TypedDict, total=False):
        batch: Annotated[Count | None, COUNT, "Sequences in the batch. Default: 1.",
        With(names="--batch -b")]
        padded: Annotated[bool, "Sequences have the length of the longest."]

An annotation has the type, the parser, the help, and `With` further arguments of `Option`. By
default the option is called like the field. The command line makes its options of such a class, a
function in Python its arguments, and a sweep its axes. The class stands where the option is used:
those of an engine in the engine's package.
"""

# Without `from __future__ import annotations`, a TypedDict has its types as objects, and not as
# strings.

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from .errors import BadValueError, did_you_mean, known_tip
from .ggml import FILE_TYPES
from .quantity import ratio
from .records import NamedTuple
from .units import (
    DS_MLA,
    DTYPES,
    dtype,
    is_dtype,
    long_option,
    parse_bytes,
    parse_count,
    parse_decimal,
    parse_price,
    truncate,
    usual_dtype,
)

# A whole number: 4096, '4_096', '4k' (4,000) or '4K' (4,096).
Count = int | str
# A size in bytes: 2**30, '5.38GiB', '5.38GB' (10^9).
Size = int | str


class Parser(NamedTuple):
    """What the text of an option means."""

    # returns the value of a text; the second argument is the option's name for errors
    parse: Callable[[str, str], Any]
    metavar: str = ""  # what stands for the value in help
    # whether the value is a whole number, so that a sweep also takes ranges of it
    is_number: bool = False
    known: tuple[str, ...] = ()  # the values, if they are a few names
    result: str = "str"  # the type of the value that an engine computes with


def count_or_zero(text: str, name: str) -> int:
    """Return a count, which may be 0. Raises AttncalcError if it is not a number."""
    if text.strip() == "0":
        return 0
    return parse_count(text, name)


def _gibibytes(text: str, name: str) -> int:
    """Return a size in bytes; a bare number is in GiB, as in vLLM's --swap-space, unless it has 7
    digits.
    """
    is_bytes = text[-1:].isalpha() or (text.strip().isdecimal() and len(text.strip()) > 6)
    return parse_bytes(text if is_bytes else f"{text}GiB", name)


def _dtype(text: str, name: str) -> str:
    return dtype(dtype_name(text)).name


def _cache_dtype(text: str, name: str) -> str | None:
    """Return the dtype, with the format of fp8 if it is not the usual one: it has other options, or
    other models.

    None stands for 'auto'.
    """
    if text == "auto":
        return None
    given = dtype(dtype_name(text)).name
    format_of_fp8 = dtype_name(text).lower()
    if format_of_fp8 == DS_MLA:
        return DS_MLA
    if given == "fp8" and "e5m2" in format_of_fp8:
        return "fp8_e5m2"
    return given


# What people call types of weights: a number of bits is the usual mixture of llama.cpp.
_WEIGHT_TYPES = {
    "q2": "q2_k",
    "q3": "q3_k_m",
    "q4": "q4_k_m",
    "q5": "q5_k_m",
    "q6": "q6_k",
    "q8": "q8_0",
}
_KNOWN_WEIGHTS = tuple(dict.fromkeys([*DTYPES, *FILE_TYPES]))


def _weights_dtype(text: str, name: str) -> str:
    given = dtype_name(text).lower()
    given = given[5:] if given in ("gptq-int4", "gptq-int8") else given
    if given.startswith("awq"):
        given = usual_dtype(given) or given
    else:
        given = _WEIGHT_TYPES.get(given, given)
    if given in FILE_TYPES:
        return given
    if not is_dtype(given):
        hint = did_you_mean(given, _KNOWN_WEIGHTS)
        # have several numbers of bits, while AWQ always has 4
        if given.startswith(("gptq", "bitsandbytes", "bnb")):
            hint = "give the bits of the file's weights, int4 or int8; "
        elif given.startswith("ud-") or given.endswith(("_xl", "_l")):
            hint = (
                "mixtures of other authors differ by model: give the .gguf file. UD-Q4_K_XL is 1 "
                "to 9 % larger than q4_k_m, UD-Q6_K_XL 6 to 16 % larger than q6_k; "
            )
        raise BadValueError(
            f"there is no dtype '{truncate(text)}'", f"{hint}known: {', '.join(_KNOWN_WEIGHTS)}"
        )
    return _dtype(given, name)


def choice(*known: str, metavar: str = "WHAT", **also: str) -> Parser:
    """Return the parser of one of several names, in any case; `also` are {another name: the
    name}.
    """

    def parse(text: str, name: str) -> str:
        given = also.get(text.lower(), text.lower())
        if given not in known:
            raise BadValueError(f"{name} cannot be '{truncate(text)}'", known_tip(given, known))
        return given

    return Parser(parse, metavar, known=known)


def dtype_name(dtype: object) -> str:
    """Return the name of a dtype, which may be one of torch: 'bfloat16' for torch.bfloat16."""
    return str(dtype).removeprefix("torch.")


TEXT = Parser(lambda text, name: text)
COUNT = Parser(parse_count, "N", is_number=True, result="int")
COUNT_OR_ZERO = Parser(count_or_zero, "N", is_number=True, result="int")
BYTES = Parser(parse_bytes, "SIZE", is_number=True, result="int")
BYTES_OR_ZERO = BYTES._replace(
    parse=lambda text, name: 0 if text.strip() == "0" else parse_bytes(text, name)
)
GIBIBYTES = Parser(_gibibytes, "GIB", result="int")
GIBIBYTES_OR_ZERO = GIBIBYTES._replace(
    parse=lambda text, name: 0 if text.strip() in ("0", "0.0") else _gibibytes(text, name)
)
DTYPE = Parser(_dtype, "DTYPE", result="DType")
# 'auto' is the engine's default, as None.
DTYPE_OR_AUTO = DTYPE._replace(
    parse=lambda text, name: None if text == "auto" else _dtype(text, name)
)
CACHE_DTYPE = Parser(_cache_dtype, "DTYPE")
# A dtype or a type of GGUF files: 'q4_k_m'.
WEIGHTS_DTYPE = Parser(_weights_dtype, "DTYPE", known=_KNOWN_WEIGHTS)
SHARE = Parser(lambda text, name: ratio(*parse_decimal(text, name, upper=1)), "SHARE")
# A number above 0, exactly; a share is at most 1; money may have a sign and a unit: '$2.49/hr'.
MONEY = Parser(lambda text, name: ratio(*parse_price(text, name)), "MONEY")
# A flag with an opposite; a start-up log has 'True' or 'False'.
YES_OR_NO = Parser(lambda text, name: text == "True", result="bool")


class Option:
    """An option of commands.

    Attributes:
        names: its names on the command line, the first for errors; a flag with an opposite is
            '--x/--no-x'.
        also: names by which users of other tools know it, which help does not list.
        help: what it means, in a sentence or two.
        metavar: what stands for its value in help, by default that of the parser; "" for a flag.
        parser: what its text means; None for a value that is taken as it is: a flag, or the name of
            a model or GPU.
        is_axis: whether it takes a list of values in a sweep.
        is_common: whether `--help` shows it; `--help all` shows all.
        is_repeated: whether it may be given several times.
        needs_gpu: whether it has no meaning without --gpu.
        field: what follows the name of the field that an engine computes with: 'int = 0'. None if
            there is no such field; "" if the parser says it.
    """

    __slots__ = (
        "also",
        "field",
        "help",
        "is_axis",
        "is_common",
        "is_repeated",
        "metavar",
        "names",
        "needs_gpu",
        "parser",
    )

    def __init__(
        self,
        *names: str,
        help: str,  # noqa: A002 - as in typer
        also: tuple[str, ...] = (),
        metavar: str = "",
        parse: Parser | None = None,
        axis: bool = True,
        common: bool = False,
        repeated: bool = False,
        needs_gpu: bool = False,
        field: str | None = "",
    ) -> None:
        self.names = names
        self.also = also
        self.help = help
        self.parser = parse
        self.metavar = metavar or (parse.metavar if parse else "")
        self.is_axis = axis and bool(self.metavar)
        self.is_common = common
        self.is_repeated = repeated
        self.needs_gpu = needs_gpu
        self.field = field

    def but(self, **changes: Any) -> "Option":
        """Return the option of the same names with other arguments of Option, such as `help` or
        `metavar`.
        """
        arguments: dict[str, Any] = {
            "help": self.help,
            "also": self.also,
            "metavar": self.metavar,
            "parse": self.parser,
        }
        arguments |= {"axis": self.is_axis, "common": self.is_common, "repeated": self.is_repeated}
        return Option(*self.names, **{**arguments, "needs_gpu": self.needs_gpu, **changes})

    @property
    def parameter(self) -> str:
        """The name of its parameter on the command line, which no other option of a command has."""
        return self.name.lstrip("-").replace("-", "_")

    @property
    def is_flag(self) -> bool:
        """Whether it is a flag without an opposite: False is as if it were not given."""
        return not self.metavar and "/" not in self.names[0]

    @property
    def name(self) -> str:
        """Its name in errors: '--kv-dtype'."""
        return self.names[0].partition("/")[0]


class With(dict[str, Any]):
    """What an annotation has besides parser and help: other arguments of `Option`, with names
    separated by blanks.
    """

    def __init__(self, *, names: str = "", also: str = "", **arguments: Any) -> None:
        super().__init__(arguments, names=names.split(), also=tuple(also.split()))

    __hash__ = object.__hash__  # type: ignore[assignment] # so that an Annotated is hashable


def by_name(options: Iterable[Option]) -> dict[str, Option]:
    """Return {name: option}, with each name of a flag ('--x/--no-x') and those by which other tools
    know an option.
    """
    named = {}
    for option in options:
        for name in (*option.names, *option.also):
            named.update(dict.fromkeys(name.split("/"), option))
    return named


def options_of(kind: Any) -> dict[str, Option]:
    """Return {field: its option} of a TypedDict, in order; fields without one are left out."""
    found = (
        (field, _declared(field, annotation)) for field, annotation in kind.__annotations__.items()
    )
    return {field: option for field, option in found if option is not None}


@cache
def _declared(field: str, annotation: Any) -> Option | None:
    """Return the option that an annotation has, or whose parser, help and other arguments it has;
    None without one.
    """
    arguments: dict[str, Any] = {}
    for part in getattr(annotation, "__metadata__", ()):
        if isinstance(part, Option):
            return part
        if isinstance(part, With):
            arguments |= part
        else:
            arguments |= {"help" if isinstance(part, str) else "parse": part}
    if not arguments:
        return None
    name = long_option(field)
    if arguments.get("parse") is YES_OR_NO:
        name = f"{name}/--no-{name[2:]}"
    return Option(*arguments.pop("names", ()) or (name,), **arguments)


def as_text(value: object) -> str:
    """Return an option as the command line has it: '3,1' for (3, 1).

    Raises BadValueError for an item of a list that would be several values there, as in ['4K,8K'].
    """
    # a Mask is a tuple too
    if isinstance(value, list | tuple | range) and not hasattr(value, "_fields"):
        items = [*map(as_text, value)]
        for item in items:
            if "," in item:
                raise BadValueError(
                    f"'{truncate(item)}' is an item of a list, which is one value and has no comma",
                    f"give {truncate(item.split(','), 80)}, or the text without a list",
                )
        return ",".join(items)
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def parsed(options: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    """Return {field: value} of the options of a TypedDict that are given; what comes as text is
    parsed.

    Raises AttncalcError if a text cannot be parsed.
    """
    values = {}
    for field, option in options_of(kind).items():
        value = options.get(field)
        if value is not None and not (option.is_flag and value is False):
            if option.parser:
                values[field] = option.parser.parse(as_text(value), option.name)
            else:
                values[field] = value
    return values
