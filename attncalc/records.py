"""`dataclass` and `NamedTuple` of the standard library, for a quick start: no class compiles
methods of its own.

The standard library writes the source of up to six methods per class and compiles it, each time a
command starts: a quarter of the instructions of `attncalc kv`, measured on 2026-11-24. Here the
methods are shared. Type checkers see the originals, and the classes behave alike.
"""

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["Keeper", "NamedTuple", "dataclass"]

Kept = TypeVar("Kept")
# The most answers that a record keeps for now.
_MOST_KEPT = 256


class Keeper:
    """A record that keeps what was computed of it."""

    def kept(self, key: Hashable, compute: Callable[[], Kept]) -> Kept:
        """Return what `compute` returned for this key before, or call it."""
        if key not in self._kept:
            self._kept[key] = compute()
        value: Kept = self._kept[key]
        return value

    def kept_for_now(self, key: tuple[Hashable, ...], compute: Callable[[], Kept]) -> Kept:
        """Return the same as `kept`, for keys of which there are many, such as batches: all but the
        last few hundred answers are dropped.

        Nothing is kept under a number that a sweep records (tracing.py), since an answer that was
        kept asks for no number.
        """
        if any(isinstance(part, int) and type(part) not in (int, bool) for part in key):
            return compute()
        if len(self._kept_for_now) >= _MOST_KEPT and key not in self._kept_for_now:
            self._kept_for_now.clear()
        if key not in self._kept_for_now:
            self._kept_for_now[key] = compute()
        value: Kept = self._kept_for_now[key]
        return value

    @cached_property
    def _kept(self) -> dict[Hashable, Any]:
        return {}

    @cached_property
    def _kept_for_now(self) -> dict[Hashable, Any]:
        return {}

    # what is kept may have functions, which cannot be pickled
    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in self.__dict__.items()
            if name not in ("_kept", "_kept_for_now")
        }


if TYPE_CHECKING:
    from dataclasses import dataclass
    from typing import NamedTuple
else:
    import dataclasses
    from collections import ChainMap, Counter, namedtuple
    from operator import attrgetter

    _calls = Counter()
    # Calls of a NamedTuple after which its constructor is compiled: a sweep makes millions of some.
    _MANY = 50

    # its names are the standard library's
    def dataclass(*, frozen, eq=True, repr=True, kw_only=False):  # noqa: A002
        """Return a decorator that makes a frozen dataclass; `dataclasses.fields` and `replace` know
        its fields.
        """
        assert frozen

        def declare(kind):
            dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(kind)
            fields = dataclasses.fields(kind)
            positional = [f.name for f in fields if not f.kw_only]
            defaults = {f.name: f.default for f in fields}
            makers = {
                f.name: f.default_factory
                for f in fields
                if f.default_factory is not dataclasses.MISSING
            }
            required = {f.name for f in fields if f.default is dataclasses.MISSING} - makers.keys()
            check = getattr(kind, "__post_init__", None)

            def initialise(self, *args, **given):
                # `dataclasses.replace` gives all of them
                if args or given.keys() != defaults.keys():
                    made = {name: make() for name, make in makers.items()}
                    given = _values(kind, positional, {**defaults, **made}, required, args, given)
                vars(self).update(given)
                if check:
                    check(self)

            kind.__init__ = initialise
            kind.__signature__ = _Signature()
            kind.__setattr__ = kind.__delattr__ = _refuse_change
            if eq:
                key = attrgetter("__class__", *(f.name for f in fields))
                kind.__eq__ = lambda self, other: (
                    key(self) == key(other) if type(self) is type(other) else NotImplemented
                )
                kind.__hash__ = lambda self: hash(key(self))
            if repr and "__repr__" not in vars(kind):
                kind.__repr__ = lambda self: _repr(
                    type(self).__qualname__, self, [f.name for f in fields]
                )
            return kind

        return declare

    class _NamedTupleType(type):
        """Makes the fields of a class that has NamedTuple as a base. What inherits from it is an
        ordinary class.
        """

        def __new__(cls, name, bases, namespace):
            if bases == (tuple,) or NamedTuple not in bases:
                return super().__new__(cls, name, bases, namespace)
            kind = super().__new__(cls, name, bases, {**namespace, "__slots__": ()})
            kind._fields = kind.__match_args__ = tuple(kind.__annotations__)
            kind._field_defaults = {
                field: namespace[field] for field in kind._fields if field in namespace
            }
            kind._required = set(kind._fields) - kind._field_defaults.keys()
            for i, field in enumerate(kind._fields):
                setattr(kind, field, _Field(i, f"Alias for field number {i}"))
            return kind

    class NamedTuple(tuple, metaclass=_NamedTupleType):
        """A tuple whose items have the names of the class's annotations."""

        __slots__ = ()

        def __new__(cls, *args, **given):
            _calls[cls] += 1
            if _calls[cls] == _MANY:
                cls.__new__ = namedtuple(
                    cls.__name__, cls._fields, defaults=cls._field_defaults.values()
                ).__new__
            if given or len(args) != len(cls._fields):
                values = {**dict.fromkeys(cls._fields), **cls._field_defaults}
                args = _values(cls, cls._fields, values, cls._required, args, given).values()
            return tuple.__new__(cls, args)

        @classmethod
        def _make(cls, values):
            return tuple.__new__(cls, values)

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def _replace(self, **changes):
            made = self._make(map(changes.pop, self._fields, self))
            if changes:
                raise TypeError(f"Got unexpected field names: {list(changes)!r}")
            return made

        def __getnewargs__(self):
            return tuple(self)

        def __repr__(self):
            return _repr(type(self).__name__, self, self._fields)

    def _values(kind, positional, defaults, required, args, given):
        """Return {field: value} of a call of a record's class, in the order of `defaults`, which
        has every field.

        Raises TypeError as a function with these parameters.
        """
        # too many arguments are refused below
        bound = {**dict(zip(positional, args)), **given}  # noqa: B905
        values = {**defaults, **bound}
        if (
            len(bound) < len(args) + len(given)
            or len(values) > len(defaults)
            or required - bound.keys()
        ):
            kind.__signature__.bind(*args, **given)
        return values

    class _Signature:
        """The signature of a record's class, for `help` and for the error of a wrong call."""

        def __get__(self, record, kind):
            from inspect import Parameter, Signature

            required = dataclasses.MISSING
            types = ChainMap(*(getattr(base, "__annotations__", {}) for base in kind.__mro__))
            by_position = []
            by_keyword = []

            def add(name, default, annotation, *, is_keyword=False):
                if default is required:
                    default = Parameter.empty
                if is_keyword:
                    way = Parameter.KEYWORD_ONLY
                    same_way = by_keyword
                else:
                    way = Parameter.POSITIONAL_OR_KEYWORD
                    same_way = by_position
                same_way.append(Parameter(name, way, default=default, annotation=annotation))

            if dataclasses.is_dataclass(kind):
                for f in dataclasses.fields(kind):
                    default = f.default_factory if f.default is required else f.default
                    add(f.name, default, f.type, is_keyword=f.kw_only)
            else:
                for name in kind._fields:
                    add(name, kind._field_defaults.get(name, required), types[name])
            return Signature([*by_position, *by_keyword])

    NamedTuple.__signature__ = _Signature()
    # in C: twice as fast as property(itemgetter(i))
    _Field = type(namedtuple("_Example", "field").field)

    def _refuse_change(self, name, *value):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field '{name}'")

    def _repr(name, record, fields):
        return f"{name}({', '.join(f'{field}={getattr(record, field)!r}' for field in fields)})"
