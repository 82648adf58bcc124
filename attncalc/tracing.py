"""A function of a few ints, run once for each way that its decisions can go, and only computed
after that.

A cost function builds its figure with a handful of operations, most of them the same for every
context and batch. Run with `Traced` ints, it writes them down as lines of Python, with what it
decided on the way as conditions. A cache with a window of 4,096 tokens becomes one of two
functions:

    def compute(B, T):                      def compute(B, T):
        if not T > 4096: return                 if T > 4096: return
        a0 = B * 4096                           a0 = B * T
        a1 = a0 * 163840                        a1 = a0 * 163840
        return (a1,)                            return (a1,)

`Compiled` asks those that it has, the last used first. If the conditions of none hold, the original
function is run again. So it returns what the function returns, and no formula is copied.

A use that cannot be written down, such as printing a number, is a condition too: that it is this
number. What follows then holds for that number only, which is right but slow.

Some uses read an int without calling it, so that no condition is noted: `range(n)`, `items[n]`,
`1.5 * n`, `math.gcd(n, 8)`, `"%d" % n`, `Fraction(n)`. A function that has one must call int(n)
first. With `CHECKED`, as in the tests, `Compiled` runs each function again with other ints in the
place of the numbers. What reads one without a condition differs then, and UnaskedNumberError is
raised.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from .errors import AttncalcError
from .quantity import Formula, Quantity, Ratio
from .records import NamedTuple

Answer = TypeVar("Answer")
# Whether each run of a `Compiled` is repeated to find numbers that are read without a condition.
CHECKED = False
# What is added to the ints of the second run. Only reading an int without calling it shows the
# difference.
_DECOY = 10**9 + 7
# Runs that are kept, so that their memory is bounded. For numbers that lead to others, the function
# is called.
_MAX_KEPT = 512
# Functions of quantity.py that are written out, which is faster than a call.
_CALLS = {
    "_ceil_div": "-(-{0} // {1})",
    "_smaller": "{0} if {0} < {1} else {1}",
    "_larger": "{0} if {0} > {1} else {1}",
}
# Operators with the right operand that changes nothing.
_WITHOUT_EFFECT = {("+", 0), ("-", 0), ("*", 1), ("//", 1)}


class LateQuestionError(RuntimeError):
    """Something that a function returned asked for a number after the function had ended."""


class UnaskedNumberError(RuntimeError):
    """A function read a number without a condition: call int(n) first."""


class _Line(NamedTuple):
    """A line of a recorded function."""

    text: str  # 'a1 = a0 * 80', or a condition that ends the function if it does not hold
    name: str  # the name that it gives a value; '' for a condition
    uses: tuple[str, ...]  # the names in it


class Recording:
    """The operations and the conditions of one run of a function."""

    def __init__(self, decoy: int = 0) -> None:
        # what is added to the int of each recorded number; its `number` stays right
        self.decoy = decoy
        self.lines: list[_Line] = []  # the lines in order, each once
        self.is_over = False
        self._names: dict[str, str] = {}
        self._results: set[str] = set()
        self._objects: dict[str, Any] = {"ratio_value": lambda a, b: Ratio(a, b, Formula(())).value}

    def result(self, text: str, number: int, *operands: int) -> "Traced":
        """Return the number that an operation gives; in the text, {0} and {1} are its operands."""
        text = text.format(*map(_code, operands))
        name = self._names.get(text)
        if name is None:
            name = self._names[text] = f"a{len(self._names)}"
            self.lines.append(_Line(f"{name} = {text}", name, _uses(operands)))
        traced: Traced = Traced.of(number, name, self)
        return traced

    def note(self, condition: str, holds: bool, *operands: int) -> None:
        """Note a condition and whether it holds. Raises LateQuestionError if the run has ended."""
        if self.is_over:
            raise LateQuestionError
        text = condition.format(*map(_code, operands))
        if text not in self._names:
            self._names[text] = ""
            self.lines.append(
                _Line(f"if {'not ' if holds else ''}{text}: return", "", _uses(operands))
            )

    def named(self, thing: Any) -> str:
        """Return a name for an object that lines use."""
        name = f"c{len(self._objects)}"
        self._objects[name] = thing
        return name

    def expression(self, figure: Any) -> str:
        """Return what computes a figure: a number, a Ratio of two, or any other object, which is
        returned as it is.
        """
        if isinstance(figure, Ratio):
            return (
                f"ratio_value({self.expression(figure.numerator)}, "
                f"{self.expression(figure.denominator)})"
            )
        if isinstance(figure, int) and not isinstance(figure, bool):
            self._results.update(_uses([figure]))
            return _code(figure)
        return self.named(figure)

    def compiled(self, variables: Sequence[str], end: str) -> Callable[..., Any]:
        """Return a function of the variables with its last line, and those before that it needs."""
        lines = [end]
        needed = self._results
        for line in reversed(self.lines):
            if not line.name or line.name in needed:
                lines.append(line.text)
                needed.update(line.uses)
        exec(
            f"def compute({', '.join(variables)}):\n " + "\n ".join(reversed(lines)), self._objects
        )
        function: Callable[..., Any] = self._objects["compute"]
        return function


class Recorded:
    """What Watched and Traced ints have in common: they note what a function asks about them.

    Copying one asks nothing, so an object that only holds it does not depend on it.
    """

    __slots__ = ()
    number: int  # the number, which the int itself is too unless the recording has a decoy
    name: str  # the name that it has in the lines of the recording
    recording: Recording  # where they are

    @classmethod
    def of(cls, number: int, name: str, recording: Recording) -> Any:
        recorded: Any = int.__new__(cls, number + recording.decoy)  # type: ignore[type-var]
        recorded.number = number
        recorded.name = name
        recorded.recording = recording
        return recorded


class Watched(Recorded, int):
    """An int of which every use is noted: a comparison, or the number itself."""


class Traced(Recorded, Quantity):
    """An int whose sums, products, quotients, minima and maxima are Traced too; every other use is
    a condition.
    """

    _formula = Formula((("traced", "traced"),))
    is_traced = True

    def called(self, function: Callable[[int, int], int], a: int, b: int) -> int:
        """Return function(a, b), one of minimum, maximum, ceil_div and exact_div, as a Traced
        int.
        """
        text = _CALLS.get(function.__name__) or f"{self.recording.named(function)}({{0}}, {{1}})"
        return self.recording.result(text, function(_plain(a), _plain(b)), a, b)


def _plain(number: int) -> int:
    """Return the number as a plain int, without a condition."""
    if isinstance(number, Recorded):
        return number.number
    return int(number)


def _code(number: int) -> str:
    if isinstance(number, Recorded):
        return number.name
    return str(int(number))


def _uses(numbers: Sequence[Any]) -> tuple[str, ...]:
    return tuple(number.name for number in numbers if isinstance(number, Recorded))


def _asked(number: Any) -> Any:
    """Return a recorded int as a plain int, on the condition that it is this one; anything else
    unchanged.
    """
    if not isinstance(number, Recorded):
        return number
    number.recording.note(f"{{0}} == {number.number}", True, number)  # type: ignore[arg-type]
    return number.number


def _use(name: str) -> Callable[..., Any]:
    """Return a method of int that asks for the number itself."""
    method = getattr(int, name)

    def used(self: Any, *others: Any) -> Any:
        return method(_asked(self), *map(_asked, others))

    return used


def _comparison(symbol: str, compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    """Return a comparison, whose answer is a condition."""

    def compared(self: Any, other: Any) -> Any:
        if not isinstance(other, int):
            if isinstance(other, float):
                return compare(_asked(self), other)
            return NotImplemented
        answer = compare(_plain(self), _plain(other))
        self.recording.note(f"{{0}} {symbol} {{1}}", answer, self, other)
        return answer

    return compared


def _operation(
    symbol: str, compute: Callable[[int, int], int], *, reflected: bool
) -> Callable[[Any, Any], Any]:
    """Return an operation whose result is Traced; 0 for a product with a plain 0."""

    def computed(self: Any, other: Any) -> Any:
        if not isinstance(other, int):
            if reflected:
                return NotImplemented
            return compute(_asked(self), other)
        if not isinstance(other, Recorded):
            if symbol == "*" and other == 0:
                return 0
            if (symbol, int(other)) in _WITHOUT_EFFECT and (symbol in "+*" or not reflected):
                return self
        a, b = (other, self) if reflected else (self, other)
        return self.recording.result(f"{{0}} {symbol} {{1}}", compute(_plain(a), _plain(b)), a, b)

    return computed


_COMPARISONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
_ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "//": "floordiv", "%": "mod"}
# Methods of int besides, without their underscores, which ask for the number itself.
_OTHER_USES = (
    "abs and ceil divmod float floor format hash index int invert lshift neg or pos pow rand "
    "rdivmod repr rlshift ror round rpow rrshift rshift rtruediv rxor truediv trunc xor"
)
for _name in (
    *_OTHER_USES.split(),
    *_ARITHMETIC.values(),
    *(f"r{_name}" for _name in _ARITHMETIC.values()),
):
    setattr(Recorded, f"__{_name}__", _use(f"__{_name}__"))
setattr(Recorded, "bit_length", _use("bit_length"))  # noqa: B010 - as the others
for _symbol, _name in _COMPARISONS.items():
    setattr(Recorded, f"__{_name}__", _comparison(_symbol, getattr(operator, _name)))
for _symbol, _name in _ARITHMETIC.items():
    setattr(Traced, f"__{_name}__", _operation(_symbol, getattr(operator, _name), reflected=False))
    setattr(Traced, f"__r{_name}__", _operation(_symbol, getattr(operator, _name), reflected=True))
setattr(Recorded, "__str__", lambda self: str(_asked(self)))  # noqa: B010 - int has none of its own
setattr(Recorded, "__bool__", lambda self: self != 0)  # noqa: B010


class Compiled:
    """A function whose results are figures: a sequence of ints, Ratios, texts or None.

    It returns them as a tuple; a Ratio is an int or a float, as in JSON.
    """

    def __init__(
        self,
        function: Callable[..., Sequence[Any]],
        variables: Sequence[str],
        kind: type[Recorded] = Traced,
    ) -> None:
        self._function = function
        self._variables = tuple(variables)
        self._kind = kind
        self._kept: list[Callable[..., Any]] = []
        self.runs = 0  # how often the function was run

    def __call__(self, *values: int) -> tuple[Any, ...]:
        """Return what the function returns for these ints, all above 0. Raises the AttncalcError
        that it raises.
        """
        result: tuple[Any, ...] | None
        for i, kept in enumerate(self._kept):
            result = kept(*values)
            if result is not None:
                if i:
                    self._kept.insert(0, self._kept.pop(i))
                return result
        self.runs += 1
        if self.runs > _MAX_KEPT:
            return tuple(
                figure.value if isinstance(figure, Ratio) else figure
                for figure in self._function(*values)
            )
        kept = self._recorded(values)
        self._kept.insert(0, kept)
        result = kept(*values)
        assert result is not None
        return result

    def _recorded(self, values: Sequence[int]) -> Callable[..., Any]:
        """Run the function, and return what computes its result while the conditions of this run
        hold.
        """
        recording = Recording()
        try:
            result = self._run(values, recording)
            if CHECKED and self._kind is Traced:
                again = Recording(_DECOY)
                if _traces(self._run(values, again), again) != _traces(result, recording):
                    raise UnaskedNumberError
            end = f"return ({''.join(f'{recording.expression(figure)}, ' for figure in result)})"
        except AttncalcError as error:
            end = f"raise {recording.named(error)}.with_traceback(None)"
        recording.is_over = True
        return recording.compiled(self._variables, end)

    def _run(self, values: Sequence[int], recording: Recording) -> Sequence[Any]:
        """Return what the function returns for recorded numbers."""
        named = zip(self._variables, values, strict=True)
        return self._function(*(self._kind.of(value, name, recording) for name, value in named))


def _traces(result: Sequence[Any], recording: Recording) -> tuple[Any, ...]:
    """Return what a run has written down, and its results: a recorded number by its name, anything
    else as it is.
    """
    results = []
    for figure in result:
        parts = figure[:2] if isinstance(figure, Ratio) else (figure,)
        results.append([part.name if isinstance(part, Recorded) else part for part in parts])
    return recording.lines, results


class Remembered(Generic[Answer]):
    """A function whose result is any object, which is kept for all numbers that it does not depend
    on.

    An object that uses a number after it was returned would answer for the number that it was made
    with. It raises LateQuestionError.
    """

    def __init__(self, function: Callable[..., Answer], variables: Sequence[str]) -> None:
        self._compiled = Compiled(lambda *numbers: (function(*numbers),), variables, Watched)

    def __call__(self, *values: int) -> Answer:
        """Return the object for these ints, all above 0. Raises the AttncalcError that the function
        raises.
        """
        answer: Answer
        (answer,) = self._compiled(*values)
        return answer

    @property
    def runs(self) -> int:
        """How often the function was run."""
        return self._compiled.runs
