"""Digest the values that a traced program holds: by type and content, whatever order a process made them in."""

import collections
import copyreg
import enum
import functools
import io
import operator
import struct
import sys
import types
import typing
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import (
    BuiltinFunctionType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any

from cutepy.host.bytecode import LINKED, read
from cutepy.host.encoding import encode_scalar, frame, text
from cutepy.host.remembered import OF_CACHES, behind_cache, follows_from_arguments
from cutepy.host.sources import pinned_package
from cutepy.host.world import reading_attributes

_LARGEST_ARRAY_BYTES = 1 << 20
_WORD_BYTES = struct.calcsize("P")

_DESCRIPTORS = (
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
_RUNNING = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, types.FrameType, types.TracebackType)
_ANNOTATION_FORMS = (types.GenericAlias, types.UnionType, type(typing.List[int]), type(typing.Union[int, str]))  # noqa: UP006, UP007
_OF_ALL_ENUMS = frozenset({"_name_", "_value_", "__objclass__", "_sort_order_"})
_PASS_INSTEAD = "pass what the kernel needs of it as a constexpr value, or compile without the cache"


class NotCacheable(TypeError):
    """A program holds or reads something whose content can't be told, so that a kept compilation could be stale."""


class Encoder:
    """Encodes values; what becomes of functions, classes and modules is decided by a subclass.

    Attributes
    ----------
    lenient : bool
        Whether what can't be digested counts by its type alone, rather than being refused.
    """

    def __init__(self) -> None:
        self.lenient = False
        self._path: list[tuple[object, ...]] = []
        self._open: dict[int, int] = {}  # values being encoded -> how deep they stand
        self._lowest = sys.maxsize  # the outermost open value that a cycle led back to
        self._known: dict[int, bytes] = {}
        self._named: dict[tuple[int, bool, bool], bytes] = {}  # likewise of functions and classes
        self._kept: list[object] = []  # so that ids stay theirs
        self._numbers: dict[int, int] = {}  # of objects that are more than their content, in the order of the walk
        self._occurrences: list[int] = []  # of these, by number

    @property
    def identities(self) -> bytes:
        """Which of the objects met are one and the same, as far as a program can tell."""
        return text(",".join(map(str, self._occurrences)))

    # --- what a subclass says

    def encode_function(self, function: FunctionType) -> bytes:
        """Encode a function of Python."""
        raise NotImplementedError

    def encode_module(self, module: ModuleType) -> bytes:
        """Encode a module used as a value."""
        raise NotImplementedError

    def encode_class(self, cls: type, called: bool) -> bytes:
        """Encode a class; `called` says that objects may be made of it."""
        raise NotImplementedError

    def pinned(self, module: str, name: str) -> bytes:
        """Encode what a version pins."""
        raise NotImplementedError

    def fresh(self) -> "Encoder":
        """Make an encoder that has seen nothing."""
        raise NotImplementedError

    def holds(self, kind: type, reading: frozenset[str]) -> None:
        """Note an object of a pinned class, and the attributes by which it answers from outside the program."""
        raise NotImplementedError

    def links(self, path: str) -> None:
        """Note the name of a file whose code may be linked."""
        raise NotImplementedError

    def reads_by_value(self) -> None:
        """Note that a value, rather than code, says which attributes are read."""
        raise NotImplementedError

    def encode_attribute(self, name: str, held: object, owner: type) -> bytes:
        """Encode an attribute of an object, which nothing may ever read, or of its class."""
        raise NotImplementedError

    # --- where we are

    def enter(self, *step: object) -> None:
        """Go to where the next values stand: a format and its arguments. Inner steps are said first."""
        self._path.append(step)

    def leave(self) -> None:
        """Go back to where the values before `enter` stand."""
        self._path.pop()

    @contextmanager
    def leniently(self, condition: bool = True) -> Iterator[None]:
        """Let what can't be digested count by its type, within."""
        before, self.lenient = self.lenient, self.lenient or condition
        yield
        self.lenient = before

    def refuse(self, what: str, advice: str = _PASS_INSTEAD) -> None:
        """Raise NotCacheable, unless lenient."""
        if not self.lenient:
            raise NotCacheable(f"{self.where()} {what}; {advice}")

    def where(self) -> str:
        """Say where the value stands that is being encoded."""
        return " of ".join(str(form).format(*arguments) for form, *arguments in reversed(self._path)) or "the value"

    def keep(self, value: object) -> None:
        """Keep a value alive, so that its id stays its own."""
        self._kept.append(value)

    # --- values

    def encode(self, value: Any, called: bool = True) -> bytes:  # noqa: ANN401
        """Encode any value: same bytes for the same type and content."""
        scalar = encode_scalar(value)
        if scalar is not None:
            if type(value) is str and value.endswith(LINKED):
                self.links(value)
            return scalar
        if isinstance(value, type) or type(value) is FunctionType:
            key = (id(value), called, self.lenient)  # leniently, what must be refused elsewhere is let pass
            known = self._named.get(key)
            if known is None:
                known = self.encode_class(value, called) if isinstance(value, type) else self.encode_function(value)
                self._named[key] = known
                self._kept.append(value)
            return known
        at = id(value)
        kind: Any = type(value)
        if _has_identity(kind):
            if at not in self._numbers:
                self._numbers[at] = len(self._numbers)
                self._kept.append(value)
            self._occurrences.append(self._numbers[at])
        if at in self._known:
            return self._known[at]
        depth = len(self._open)
        if at in self._open:
            self._lowest = min(self._lowest, self._open[at])
            return frame("cycle", b"%d" % (depth - self._open[at]))
        outer, self._lowest = self._lowest, sys.maxsize
        self._open[at] = depth
        encoded = self._compound(value)
        del self._open[at]
        # Kept only if it means the same anywhere: it leads back to nothing outside, and held nothing against the rules.
        if self._lowest >= depth:
            if not self.lenient:
                self._known[at] = encoded
                self.keep(value)
            self._lowest = sys.maxsize
        self._lowest = min(self._lowest, outer)
        return encoded

    def plain(self, value: object) -> bytes | None:
        """Encode a scalar or a tuple of such; None for anything else."""
        if type(value) is tuple:
            parts = [self.plain(item) for item in value]
            return None if None in parts else frame("tuple", *(part for part in parts if part is not None))
        return encode_scalar(value)

    def _compound(self, value: Any) -> bytes:  # noqa: ANN401
        kind = type(value)
        if kind in _EXACT:
            exact: bytes = _EXACT[kind](self, value)
            return exact
        if isinstance(value, ModuleType):
            return self.encode_module(value)
        if isinstance(value, _DESCRIPTORS):
            called = not isinstance(value, types.GetSetDescriptorType | types.MemberDescriptorType)
            return frame("descriptor", self.encode(value.__objclass__, called), text(value.__name__))
        if isinstance(value, _ANNOTATION_FORMS):
            origin = typing.get_origin(value) or type(value)
            return frame("annotation", self.encode(origin), self.encode(list(typing.get_args(value))))
        if isinstance(value, enum.Enum):
            more = {name: held for name, held in value.__dict__.items() if name not in _OF_ALL_ENUMS}
            return frame(
                "enum",
                self.encode(kind, called=False),
                text(str(value._name_)),
                self.encode(value._value_),
                self.encode(more) if more else b"",
            )
        if self.lenient and kind.__module__.startswith("cutepy.host."):  # a compiled function, a cache
            return frame("of", self.encode(kind, called=False))
        self._refuse_known(value, kind)
        for base, content in _CONTENT.items():
            if isinstance(value, base):
                return frame(
                    "of", self.encode(kind, called=False), self.encode(content(value)), self._state(value, kind)
                )
        if pinned_package(kind.__module__):
            return self._pinned_instance(value, kind)
        if _hides_state(kind):
            return self._opaque(kind)
        return frame("instance", self.encode(kind, called=False), self._state(value, kind))

    def _refuse_known(self, value: Any, kind: type) -> None:  # noqa: ANN401
        """Refuse what has content that no digest can tell, with advice where there is some."""
        name = f"{kind.__module__}.{kind.__qualname__}"
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            self.refuse(
                f"is a Tensor ({name}), whose address tracing would bake in", "pass it as an argument of the function"
            )
        elif isinstance(value, _RUNNING):
            self.refuse(f"is a {name}, which is in the middle of running", "pass what it gives as a tuple")
        elif isinstance(value, io.IOBase):
            self.refuse(f"is an open file ({name})", "read it before, and pass its content")
        elif isinstance(value, weakref.ReferenceType | weakref.ProxyType | weakref.CallableProxyType):
            self.refuse("is a weak reference", "hold the object itself")
        elif name == "os._Environ":
            self.refuse("is the environment", "read it before, and pass what you read as a constexpr value")
        elif name in ("random.Random", "random.SystemRandom", "numpy.random._generator.Generator"):
            self.refuse(f"is a source of chance ({name})", "draw before, and pass the numbers as constexpr values")

    def _pinned_instance(self, value: Any, kind: type) -> bytes:  # noqa: ANN401
        """Encode an object of a pinned class, which knows best what it holds if it says how to copy itself."""
        numpy = sys.modules.get("numpy")
        if numpy is not None and kind is numpy.ndarray:
            if not self.lenient:
                self.holds(kind, frozenset())
            return self._array(value)
        if not self.lenient and kind in (operator.attrgetter, operator.methodcaller):
            self.reads_by_value()
        reading = reading_attributes(kind)
        if reading is None:
            self.refuse(f"is a {kind.__module__}.{kind.__qualname__}, which may answer from outside the program")
        elif not self.lenient:
            self.holds(kind, reading)
        registered = copyreg.dispatch_table.get(kind)
        own = any({"__reduce__", "__reduce_ex__"} & vars(cls).keys() for cls in kind.__mro__[:-1])
        if registered is None and not own and not _hides_state(kind):
            return frame("instance", self.encode(kind, called=False), self._state(value, kind))
        try:
            reduced = registered(value) if registered else value.__reduce_ex__(4)
        except Exception:  # each type refuses in its own way
            return self._opaque(kind)
        if isinstance(reduced, str):
            home = sys.modules.get(getattr(value, "__module__", None) or kind.__module__)
            if pinned_package(getattr(home, "__name__", "")) and getattr(home, reduced, None) is value:
                return frame("named", self.encode(kind, called=False), text(reduced))
            return self._state_in_words(value, kind)
        make, arguments, *rest = reduced
        pieces = [arguments, *(list(piece) if isinstance(piece, Iterator) else piece for piece in rest)]
        with self.leniently(bool(pinned_package(getattr(make, "__module__", None) or "builtins"))):
            made_by = self.encode(make)  # which does not run while the program is traced
        return frame("reduced", self.encode(kind, called=False), made_by, *map(self.encode, pieces))

    def _state_in_words(self, value: Any, kind: type) -> bytes:  # noqa: ANN401
        """Encode an object that goes by its name, such as a type variable, by the attributes it is known for."""
        names = _WORDS.get(f"{kind.__module__}.{kind.__qualname__}")
        if names is None:
            return self._opaque(kind)
        none = getattr(typing, "NoDefault", None)  # of Python 3.13
        held = (getattr(value, name, None) for name in names)
        return frame("words", text(kind.__qualname__), *(self.encode(None if x is none else x) for x in held))

    def _opaque(self, kind: type) -> bytes:
        name = f"{kind.__module__}.{kind.__qualname__}"
        self.refuse(f"is a {name}, whose content can't be told")
        return frame("opaque", text(name))

    def _array(self, array: Any) -> bytes:  # noqa: ANN401
        if array.dtype.hasobject or array.nbytes > _LARGEST_ARRAY_BYTES:
            size = f"{array.nbytes} bytes of dtype {array.dtype}"
            self.refuse(f"is an array of {size}; arrays of numbers up to {_LARGEST_ARRAY_BYTES} bytes are digested")
            return frame("opaque array")
        places = self.encode(
            (array.shape, array.strides, array.flags.num, array.dtype.metadata and dict(array.dtype.metadata))
        )
        return frame("array", text(repr(array.dtype.descr)), places, array.tobytes())

    def _state(self, value: object, kind: type) -> bytes:
        """Encode the attributes of an object, by name."""
        pieces = []
        for name, held in self._held(value, kind).items():
            self.enter("attribute `{}`", name)
            pieces += [text(name), self.encode_attribute(name, held, kind)]
            self.leave()
        return frame("state", *pieces)

    def _held(self, value: object, kind: type) -> dict[str, object]:
        held: dict[str, object] = {}
        for cls in reversed(kind.__mro__):
            for name, member in vars(cls).items():
                if type(member) is types.MemberDescriptorType and name not in ("__dict__", "__weakref__"):
                    try:
                        held[name] = member.__get__(value, kind)
                    except AttributeError:  # an empty slot
                        continue
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict):
            held.update(own)
        return held

    def _items(self, tag: str, values: Any) -> bytes:  # noqa: ANN401
        pieces = []
        for index, item in enumerate(values):
            self.enter("item {}", index)
            pieces.append(self.encode(item))
            self.leave()
        return frame(tag, *pieces)

    def _mapping(self, mapping: Any) -> bytes:  # noqa: ANN401
        pieces = []
        for key, item in list(mapping.items()):  # in their order, which a loop would follow
            self.enter("item {!r:.40}" if isinstance(key, str | int) else "an item", key)
            pieces += [self.encode(key), self.encode(item)]
            self.leave()
        return frame("dict", *pieces)

    def _set(self, values: Any) -> bytes:  # noqa: ANN401
        """Encode a set in an order of its own: that of its elements' digests, each as if it stood alone.

        Numbers stand in the same order in every process, which a loop would follow.
        """
        if all(type(item) in _NUMBERS for item in values):
            return self._items(type(values).__name__, values)
        pieces = sorted((self._alone(item), index) for index, item in enumerate(values))
        items = list(values)
        return frame(type(values).__name__, *(self.encode(items[index]) for _, index in pieces))

    def _alone(self, item: object) -> bytes:
        scalar = self.plain(item)
        return scalar if scalar is not None else self.fresh().digest_alone(item, self.lenient)

    def digest_alone(self, item: object, lenient: bool) -> bytes:
        """Digest one value and all it leads to."""
        raise NotImplementedError

    def _builtin(self, function: BuiltinFunctionType) -> bytes:
        owner = function.__self__
        if not self.lenient and function in _READING_BY_NAME:
            self.reads_by_value()
        if owner is not None and not isinstance(owner, ModuleType):
            return frame("bound", text(function.__name__), self.encode(owner))
        module = function.__module__ or (owner.__name__ if owner else "builtins")
        if pinned_package(module):
            return self.pinned(module, function.__qualname__)
        return frame("compiled", self.encode_compiled(module), text(function.__qualname__))

    def encode_compiled(self, module: str) -> bytes:
        """Encode the compiled extension that a function comes from."""
        raise NotImplementedError

    def _cached(self, function: Any) -> bytes:  # noqa: ANN401
        """Encode a function behind `functools.lru_cache`, and the results that it holds from an earlier state."""
        own = {name: value for name, value in vars(function).items() if name not in OF_CACHES}
        called, results = behind_cache(function)
        if called is None:
            return self._opaque(type(function))
        pieces = [self.encode(called), self.encode(own)]
        if function.__wrapped__ is not called:
            pieces.append(self.encode(function.__wrapped__))
        if not self.lenient and not follows_from_arguments(called):
            order = sorted((self._alone(key), index) for index, (key, _) in enumerate(results))
            pieces += [self.encode(piece) for _, index in order for piece in results[index]]
        return frame("lru_cache", *pieces)

    def _method(self, method: MethodType) -> bytes:
        return frame("method", self.encode(method.__self__), self.encode(method.__func__))

    def _method_wrapper(self, wrapper: Any) -> bytes:  # noqa: ANN401
        return frame("method wrapper", self.encode(wrapper.__self__), text(wrapper.__name__))

    def _partial(self, value: functools.partial[Any]) -> bytes:
        function = self.encode(value.func)
        self.enter("arguments bound by a partial")
        bound = [self.encode(held) for held in (value.args, value.keywords, value.__dict__)]
        self.leave()
        return frame("partial", function, *bound)

    def _property(self, value: property) -> bytes:
        return frame("property", *(self.encode(function) for function in (value.fget, value.fset, value.fdel)))


@functools.cache
def _has_identity(kind: Any) -> bool:  # noqa: ANN401
    """Tell whether an object is more than its content: it can be changed, or is told apart from equal ones.

    Values that compare by content and can be hashed are taken as such, and so is what Python makes anew at each use.
    """
    if kind in _EXACT:
        return kind in (list, dict, set, bytearray)
    compared: object = kind.__eq__
    return compared is object.__eq__ or kind.__hash__ is None


def _hides_state(kind: type) -> bool:
    """Tell whether objects of a class hold more in memory than the attributes that Python shows."""
    members = {
        (cls, name)
        for cls in kind.__mro__
        for name, member in vars(cls).items()
        if type(member) is types.MemberDescriptorType and name not in ("__dict__", "__weakref__")
    }
    words = len(members) + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    return kind.__itemsize__ != 0 or kind.__basicsize__ > object.__basicsize__ + _WORD_BYTES * words


_OF_TYPE_VARIABLES = ("__name__", "__bound__", "__constraints__", "__covariant__", "__contravariant__", "__default__")
_WORDS = {
    "typing.NewType": ("__name__", "__supertype__"),
    "typing.ParamSpec": _OF_TYPE_VARIABLES,
    "typing.TypeVar": _OF_TYPE_VARIABLES,
    "typing.TypeVarTuple": ("__name__", "__default__"),
}

# How an object of a subclass gives the content of the base, whatever it overrides.
_CONTENT: dict[type, Any] = {
    collections.OrderedDict: lambda value: list(collections.OrderedDict.items(value)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    list: lambda value: list(list.__iter__(value)),
    dict: lambda value: dict(dict.items(value)),
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    str: lambda value: str.__str__(value),
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    int: lambda value: int.__pos__(value),
    float: lambda value: float.__pos__(value),
    complex: lambda value: complex.__pos__(value),
}
_READING_BY_NAME = (getattr, hasattr, vars, eval, exec)
_NUMBERS = (bool, complex, float, int)
_EXACT: dict[type, Any] = {
    tuple: lambda encoder, value: encoder._items("tuple", value),
    list: lambda encoder, value: encoder._items("list", value),
    dict: Encoder._mapping,
    MappingProxyType: Encoder._mapping,
    set: Encoder._set,
    frozenset: Encoder._set,
    bytearray: lambda encoder, value: frame("bytearray", bytes(value)),
    range: lambda encoder, value: frame("range", *map(encoder.encode, (value.start, value.stop, value.step))),
    slice: lambda encoder, value: frame("slice", *map(encoder.encode, (value.start, value.stop, value.step))),
    types.CodeType: lambda encoder, value: read(value).digest,
    MethodType: Encoder._method,
    BuiltinFunctionType: Encoder._builtin,
    types.MethodWrapperType: Encoder._method_wrapper,
    property: Encoder._property,
    staticmethod: lambda encoder, value: frame("staticmethod", encoder.encode(value.__func__)),
    classmethod: lambda encoder, value: frame("classmethod", encoder.encode(value.__func__)),
    functools.cached_property: lambda encoder, value: frame("cached_property", encoder.encode(value.func)),
    functools.partial: Encoder._partial,
    functools.lru_cache(lambda: None).__class__: Encoder._cached,
    types.CellType: lambda encoder, value: frame("cell", encoder.encode(value.cell_contents)),
}
