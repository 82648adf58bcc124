"""A function of a few ints, run once for each way that its decisions can go, and only computed after that.

A cost function builds its figure with a handful of operations, most of them the same for every context and batch. Run
with `Traced` ints, it records these operations, and what it decided on the way, such as whether the context is longer
than a window. `Compiled` keeps both as a tree:

    T > 4096?  no:  the figure is 163840 * B * T
               yes: the figure is 671088640 * B

For other numbers it asks the same questions. If they lead to a figure, that one is computed; if they lead to an answer
that has not come up yet, the function is run again. So it returns what the function returns, and no formula is copied.

A use that cannot be recorded, such as printing a number, is a question too: "which number is it?". What follows then
holds for that number only, which is right but slow.

Some uses read an int without calling it, so that no question is noted: `range(n)`, `items[n]`, `1.5 * n`,
`math.gcd(n, 8)`, `"%d" % n`, `Fraction(n)`. A function that has one must call int(n) first. With `CHECKED`, as in the
tests, `Compiled` runs each function again with other ints in the place of the numbers. What reads one without a
question differs then, and UnaskedNumberError is raised.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from .errors import AttncalcError
from .quantity import Formula, Quantity, Ratio

Answer = TypeVar("Answer")
Monomial = tuple[int, ...]
"""A product of atoms, by their indices, in order; () is 1."""
Terms = Mapping[Monomial, int]
"""A sum of products with their factors: {(0, 1): 80, (): 2} is 80 * B * T + 2."""
CHECKED = False
"""Whether each run of a `Compiled` is repeated to find numbers that are read without a question."""
_DECOY = 10**9 + 7
"""What is added to the ints of the second run. Only reading an int without calling it shows the difference."""
_MAX_TERMS = 64
"""Terms that a product may be expanded to."""


class Atom(NamedTuple):
    """A variable, or an operation that is not expanded to terms.

    Attributes:
        operation: The name of a variable; '//', '%' or '*'; or the function that is called.
        is_positive: Whether it is above 0 for all variables above 0.
        left: The first operand; None for a variable.
        right: The second operand; None for a variable.
    """

    operation: str | Callable[[int, int], int]
    is_positive: bool
    left: Terms | None = None
    right: Terms | None = None


class Question(NamedTuple):
    """What a function asked.

    Attributes:
        comparison: '<', '==', ...: how the number compares with 0; '' asks for the number itself.
        terms: The number.
        answer: True or False, or the number.
    """

    comparison: str
    terms: Terms
    answer: int


class LateQuestionError(RuntimeError):
    """Something that a function returned asked for a number after the function had ended."""


class UnaskedNumberError(RuntimeError):
    """A function read a number without a question: call int(n) first."""


class Recording:
    """The operations and the questions of one run of a function.

    Attributes:
        atoms: Each atom after those in its operands.
        questions: The questions in order, each once.
        is_over: Whether the run has ended.
        decoy: What is added to the int of each recorded number; its `number` stays right.
    """

    def __init__(self, decoy: int = 0) -> None:
        self.decoy = decoy
        self.atoms: list[Atom] = []
        self.questions: list[Question] = []
        self.is_over = False
        self._indices: dict[Any, int] = {}
        self._asked: set[Any] = set()

    def as_terms(self, atom: Atom) -> Terms:
        """Return an atom as terms; equal atoms get one index."""
        key = (atom.operation, _key(atom.left), _key(atom.right))
        if key not in self._indices:
            self._indices[key] = len(self.atoms)
            self.atoms.append(atom)
        return {(self._indices[key],): 1}

    def ask(self, comparison: str, terms: Terms, answer: int) -> None:
        """Note a question with its answer. Raises LateQuestionError if the run has ended."""
        key = (comparison, _key(terms))
        if self.is_over:
            raise LateQuestionError
        if key not in self._asked:
            self._asked.add(key)
            self.questions.append(Question(comparison, terms, answer))

    def least(self, terms: Terms) -> int | None:
        """Return a lower bound of the number for all variables above 0; None if its terms show none.

        Each product of numbers above 0 is at least 1, so the sum of the factors is a bound if none is below 0.
        """
        products = [monomial for monomial in terms if monomial]
        if any(terms[monomial] < 0 or not all(self.atoms[i].is_positive for i in monomial) for monomial in products):
            return None
        return sum(terms.values())

    def are_positive(self, *numbers: Terms) -> bool:
        """Return whether the terms show that the numbers are above 0 for all variables above 0."""
        return all((self.least(terms) or 0) > 0 for terms in numbers)


def _key(terms: Terms | None) -> tuple[tuple[Monomial, int], ...]:
    return () if terms is None else tuple(sorted(terms.items()))


def _sum(left: Terms, right: Terms, sign: int = 1) -> Terms:
    terms = dict(left)
    for monomial, factor in right.items():
        terms[monomial] = terms.get(monomial, 0) + sign * factor
    return {monomial: factor for monomial, factor in terms.items() if factor}


def _product(left: Terms, right: Terms) -> Terms:
    terms: dict[Monomial, int] = {}
    for a, m in left.items():
        for b, n in right.items():
            monomial = tuple(sorted(a + b))
            terms[monomial] = terms.get(monomial, 0) + m * n
    return terms


def _has_variables(terms: Terms) -> bool:
    return any(terms)  # () is the monomial of a constant


class Recorded:
    """What Watched and Traced ints have in common: they note what a function asks about them.

    Copying one asks nothing, so an object that only holds it does not depend on it.

    Attributes:
        number: The number, which the int itself is too unless the recording has a decoy.
        terms: How the number was computed.
        recording: Where its questions go.
    """

    __slots__ = ()
    number: int
    terms: Terms
    recording: Recording

    @classmethod
    def of(cls, number: int, terms: Terms, recording: Recording) -> Any:
        """Return the int of a number that was computed so."""
        recorded: Any = int.__new__(cls, number + recording.decoy)  # type: ignore[type-var]
        recorded.number, recorded.terms, recorded.recording = number, terms, recording
        return recorded


class Watched(Recorded, int):
    """An int whose every use is a question: a comparison, or the number itself."""


class Traced(Recorded, Quantity):
    """An int whose sums, products, quotients, minima and maxima are Traced too; every other use is a question."""

    formula = Formula((("traced", "traced"),))
    is_traced = True

    def called(self, function: Callable[[int, int], int], a: int, b: int) -> int:
        """Return function(a, b), one of minimum, maximum, ceil_div and exact_div, as a Traced int."""
        left, right, recording = _terms(a), _terms(b), self.recording
        # Each of the four is above 0 for two numbers above 0; exact_div because it leaves no rest.
        terms = recording.as_terms(Atom(function, recording.are_positive(left, right), left, right))
        traced: int = Traced.of(function(_plain(a), _plain(b)), terms, recording)
        return traced


def _plain(number: int) -> int:
    """Return the number as a plain int, without a question."""
    return number.number if isinstance(number, Recorded) else int(number)


def _asked(number: Any) -> Any:
    """Return a recorded int as a plain int, which is a question; anything else unchanged."""
    if not isinstance(number, Recorded):
        return number
    number.recording.ask("", number.terms, number.number)
    return number.number


def _terms(number: int) -> Terms:
    if isinstance(number, Recorded):
        return number.terms
    return {(): int(number)} if number else {}


def _use(name: str) -> Callable[..., Any]:
    """Return a method of int that asks for the number itself."""
    method = getattr(int, name)

    def used(self: Any, *others: Any) -> Any:
        return method(_asked(self), *map(_asked, others))

    return used


def _comparison(symbol: str, compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    """Return a comparison, which asks how the difference compares with 0 unless that is known."""

    def compared(self: Any, other: Any) -> Any:
        if not isinstance(other, int):
            return compare(_asked(self), other) if isinstance(other, float) else NotImplemented
        recording, difference = self.recording, _sum(self.terms, _terms(other), -1)
        answer = compare(_plain(self), _plain(other))
        if not _is_known(recording, difference, symbol):
            recording.ask(symbol, difference, answer)
        return answer

    return compared


def _is_known(recording: Recording, difference: Terms, symbol: str) -> bool:
    """Return whether the answer is the same for all variables above 0, because of the difference's least value."""
    if not _has_variables(difference):
        return True
    opposite = {monomial: -factor for monomial, factor in difference.items()}
    for terms, known_from_0 in ((difference, ("<", ">=")), (opposite, (">", "<="))):
        least = recording.least(terms)
        if least is not None:
            return least > 0 or (least == 0 and symbol in known_from_0)
    return False


def _operation(symbol: str, compute: Callable[[int, int], int], *, reflected: bool) -> Callable[[Any, Any], Any]:
    """Return an operation whose result is Traced, or a plain int if it is the same for all variables."""

    def computed(self: Any, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented if reflected else compute(_asked(self), other)
        a, b = (other, self) if reflected else (self, other)
        value, terms = compute(_plain(a), _plain(b)), _computed(symbol, _terms(a), _terms(b), self.recording)
        return Traced.of(value, terms, self.recording) if _has_variables(terms) else value

    return computed


def _computed(symbol: str, left: Terms, right: Terms, recording: Recording) -> Terms:
    if symbol in "+-":
        return _sum(left, right, 1 if symbol == "+" else -1)
    if symbol == "*" and len(left) * len(right) <= _MAX_TERMS:
        return _product(left, right)
    divisor = right.get((), 0)
    if symbol == "//" and set(right) == {()} and not any(factor % divisor for factor in left.values()):
        return {monomial: factor // divisor for monomial, factor in left.items()}
    return recording.as_terms(Atom(symbol, symbol == "*" and recording.are_positive(left, right), left, right))


_COMPARISONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
_ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "//": "floordiv", "%": "mod"}
_OTHER_USES = (
    "abs and ceil divmod float floor format hash index int invert lshift neg or pos pow rand rdivmod repr rlshift ror "
    "round rpow rrshift rshift rtruediv rxor truediv trunc xor"
)
"""Methods of int besides, without their underscores, which ask for the number itself."""
for _name in (*_OTHER_USES.split(), *_ARITHMETIC.values(), *(f"r{_name}" for _name in _ARITHMETIC.values())):
    setattr(Recorded, f"__{_name}__", _use(f"__{_name}__"))
setattr(Recorded, "bit_length", _use("bit_length"))  # noqa: B010 - as the others
for _symbol, _name in _COMPARISONS.items():
    setattr(Recorded, f"__{_name}__", _comparison(_symbol, getattr(operator, _name)))
for _symbol, _name in _ARITHMETIC.items():
    setattr(Traced, f"__{_name}__", _operation(_symbol, getattr(operator, _name), reflected=False))
    setattr(Traced, f"__r{_name}__", _operation(_symbol, getattr(operator, _name), reflected=True))
setattr(Recorded, "__str__", lambda self: str(_asked(self)))  # noqa: B010 - int has none of its own
setattr(Recorded, "__bool__", lambda self: self != 0)  # noqa: B010


class _Source:
    """The text of a function that computes recorded numbers.

    Attributes:
        lines: A line per atom that is needed.
        objects: The objects that the lines name.
    """

    CALLS: ClassVar[Mapping[str, str]] = {
        "_ceil_div": "-(-{0} // {1})",
        "_smaller": "{0} if {0} < {1} else {1}",
        "_larger": "{0} if {0} > {1} else {1}",
    }
    """Functions that are written out, which is faster than a call."""

    def __init__(self, recording: Recording) -> None:
        self.lines: list[str] = []
        self.objects: dict[str, Any] = {"ratio_value": _ratio_value}
        self._atoms = recording.atoms
        self._names: dict[int, str] = {}

    def compiled(self, variables: Sequence[str], results: Sequence[Any]) -> Callable[..., Any]:
        """Return a function of the variables that computes the results as a tuple.

        A result is a number, a Ratio of two of them, a Question, whose answer is computed, or any object, which is
        returned as it is.
        """
        values = [self._value(result) for result in results]
        lines = [*self.lines, f"return ({''.join(f'{value}, ' for value in values)})"]
        text = f"def compute({', '.join(variables)}):\n" + "".join(f" {line}\n" for line in lines)
        exec(text, self.objects)  # the text has only operators, numbers and the names of these objects
        function: Callable[..., Any] = self.objects["compute"]
        return function

    def _value(self, result: Any) -> str:
        """Return the expression of a result."""
        if isinstance(result, Question):
            number = self._number(result.terms)
            return f"{number} {result.comparison} 0" if result.comparison else number
        if isinstance(result, Ratio):
            return f"ratio_value({self._value(result.numerator)}, {self._value(result.denominator)})"
        if isinstance(result, int) and not isinstance(result, bool):
            return self._number(_terms(result))
        return self._named(result)

    def _named(self, thing: Any) -> str:
        """Return a name for an object."""
        name = f"c{len(self.objects)}"
        self.objects[name] = thing
        return name

    def _number(self, terms: Terms) -> str:
        """Return the expression of terms; the atoms in them get lines."""
        self._add_atoms(terms)
        parts = [
            "*".join([*([str(factor)] if factor != 1 or not monomial else []), *(self._names[i] for i in monomial)])
            for monomial, factor in terms.items()
        ]
        return f"({' + '.join(parts)})" if parts else "0"

    def _add_atoms(self, terms: Terms) -> None:
        """Add the atoms in terms. An atom's operands have lower indices, so that this needs no recursion."""
        needed, open_terms = set[int](), [terms]
        while open_terms:
            for index in {i for monomial in open_terms.pop() for i in monomial} - needed - self._names.keys():
                needed.add(index)
                atom = self._atoms[index]
                open_terms += [operand for operand in (atom.left, atom.right) if operand is not None]
        for index in sorted(needed):
            atom = self._atoms[index]
            if atom.left is None or atom.right is None:
                self._names[index] = str(atom.operation)
                continue
            call = f"{{0}} {atom.operation} {{1}}"
            if not isinstance(atom.operation, str):
                call = self.CALLS.get(atom.operation.__name__) or f"{self._named(atom.operation)}({{0}}, {{1}})"
            self._names[index] = f"a{index}"
            self.lines.append(f"a{index} = {call.format(self._number(atom.left), self._number(atom.right))}")


def _ratio_value(numerator: int, denominator: int) -> int | float:
    return Ratio(numerator, denominator, Formula(())).value


class _Branch(NamedTuple):
    """A question, and where each answer leads: to another branch or to a leaf."""

    ask: Callable[..., Any]
    by_answer: dict[int, Any]


class _Leaf(NamedTuple):
    """What the function returns, or the error that it raises."""

    answer: Callable[..., Any]
    error: AttncalcError | None = None


class _Tree(Generic[Answer]):
    """The answers of a function, by the questions that it asks.

    Attributes:
        runs: How often the function was run.
    """

    MAX_LEAVES: ClassVar[int] = 4096
    """Answers that a tree keeps; it starts anew when it has more, so that its memory is bounded."""
    _kind: ClassVar[type[Recorded]]

    def __init__(self, function: Callable[..., Any], variables: Sequence[str]) -> None:
        self._function = function
        self._variables = tuple(variables)
        self._root: Any = None
        self._leaves = 0
        self.runs = 0

    def __call__(self, *values: int) -> Answer:
        """Return what the function returns for these ints, all above 0. Raises the AttncalcError that it raises."""
        place = self._root
        while place.__class__ is _Branch:
            place = place.by_answer.get(place.ask(*values)[0])
        leaf = self._grow(values) if place is None else place
        if leaf.error is not None:
            raise leaf.error.with_traceback(None)
        result: Answer = leaf.answer(*values)
        return result

    def _grow(self, values: Sequence[int]) -> _Leaf:
        """Run the function with these values, and add its questions and its answer to the tree."""
        self.runs += 1
        if self._leaves >= self.MAX_LEAVES:
            self._root, self._leaves = None, 0
        self._leaves += 1
        recording = Recording()
        try:
            leaf = _Leaf(self._answer(values, recording))
        except AttncalcError as error:
            leaf = _Leaf(lambda *_: None, error)
        recording.is_over = True
        start = {0: self._root}
        places, answer = start, 0
        for question in recording.questions:
            if places.get(answer) is None:
                places[answer] = _Branch(_Source(recording).compiled(self._variables, (question,)), {})
            places, answer = places[answer].by_answer, question.answer
        places[answer] = leaf
        self._root = start[0]
        return leaf

    def _run(self, values: Sequence[int], recording: Recording) -> Any:
        """Return what the function returns for recorded numbers."""
        variables = [
            self._kind.of(value, recording.as_terms(Atom(name, is_positive=True)), recording)
            for name, value in zip(self._variables, values, strict=True)
        ]
        return self._function(*variables)

    def _answer(self, values: Sequence[int], recording: Recording) -> Callable[..., Any]:
        """Return a function that returns what this one does, for all numbers with the same answers."""
        raise NotImplementedError


class Compiled(_Tree[tuple[Any, ...]]):
    """A function whose results are figures: a sequence of ints, Ratios, texts or None.

    It returns them as a tuple; a Ratio is an int or a float, as in JSON.
    """

    _kind = Traced

    def _answer(self, values: Sequence[int], recording: Recording) -> Callable[..., Any]:
        result = self._run(values, recording)
        if CHECKED:
            again = Recording(_DECOY)
            if _traces(self._run(values, again), again) != _traces(result, recording):
                raise UnaskedNumberError
        return _Source(recording).compiled(self._variables, result)


def _traces(result: Sequence[Any], recording: Recording) -> tuple[Any, ...]:
    """Return what a run has noted, and its results: a recorded number by its terms, anything else as it is."""
    numbers = [(r.numerator, r.denominator) if isinstance(r, Ratio) else (r,) for r in result]
    parts = [[_key(part.terms) if isinstance(part, Recorded) else part for part in parts] for parts in numbers]
    return recording.atoms, recording.questions, parts


class Remembered(_Tree[Answer]):
    """A function whose result is any object, which is kept for all numbers that it does not depend on.

    An object that uses a number after it was returned would answer for the number that it was made with. It raises
    LateQuestionError.
    """

    MAX_LEAVES = 512
    _kind = Watched

    def _answer(self, values: Sequence[int], recording: Recording) -> Callable[..., Any]:
        result = self._run(values, recording)
        return lambda *_: result
