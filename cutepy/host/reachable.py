"""Walk over everything that a function can reach while it is traced, and digest it part by part.

Functions, classes and the globals they read become parts of their own, which refer to each other by label, so that
cycles are no trouble; values are digested by content (`Encoder`). What runs while the program is traced must be
digestible to the last value. What merely belongs to a class, such as a method that nothing calls, is digested too,
but may hold a lock or read the environment.
"""

import enum
import functools
import importlib
import importlib.util
import os
import sys
from abc import ABC, ABCMeta
from collections.abc import Callable, Iterator
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    ModuleType,
)
from typing import Any, Generic, Protocol

from cutepy.host import sources, surroundings
from cutepy.host.bytecode import Chain, Import, line_of, read
from cutepy.host.encoding import frame, text
from cutepy.host.naming import Where, code_of, functions_of, is_by_file, is_dunder, is_pinned, label_of, name_root
from cutepy.host.usage import Usage
from cutepy.host.values import Encoder, NotCacheable
from cutepy.host.world import READING_METHODS, is_harmless, reads_world

_MISSING = object()
_UNKNOWN = object()
# With these, a function reads whatever its module holds.
_WHOLE_MODULES = frozenset({"eval", "exec", "globals", "modules", "vars"})
_ANNOTATIONS = frozenset({"__annotations__", "__dataclass_fields__", "__orig_bases__", "__parameters__"})
# What `set_name_prefix` writes. Traced code that calls it names its kernels anew each time, so that what an earlier
# trace left there says nothing.
_KERNEL_NAME = "_cute_dsl_name_options"
_DECORATED = "_preprocess_enabled"
_CALLED_BY_NAME = (("getattr",), ("hasattr",))
# What the DSL writes on functions that it decorates, and on those while it traces them.
_TRACING_STATE = frozenset(
    {"_decorator_kind", "_decorator_location", "_original_code", "_preprocessed", "_preprocessed_signature"}
    | {"set_name_prefix"}
    | {_DECORATED, _KERNEL_NAME}
)
# Attributes of classes that hold no content of their own, or that of other attributes (as do dataclasses' docstrings,
# in which sets are written in the order of one process). Python 3.13 drops a class's line when its module is renamed;
# lines that count are those of its methods.
_DERIVED = frozenset(
    {"__dict__", "__doc__", "__weakref__", "__abstractmethods__", "_abc_impl", "__slotnames__"} | {"__firstlineno__"}
)
_DERIVED_OF_ENUMS = frozenset(
    {"_value2member_map_", "_hashable_values_", "_unhashable_values_", "_unhashable_values_map_"}
)


class Walk(Encoder):
    """One walk; `parts` holds its result.

    Attributes
    ----------
    parts : dict of name to digest
    modules : dict of str to None
        Modules that something came from, in order.
    files : dict of str to None
        Files that code says it came from.
    """

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[str, bytes] = {}
        self.modules: dict[str, None] = {}
        self.files: dict[str, None] = {}
        self._globals: dict[tuple[int, tuple[str, ...]], bytes] = {}
        self._labels: dict[int, str] = {}
        self._label_counts: dict[str, int] = {}
        self._waiting: list[Callable[[], None]] = []
        # What nothing is known to use, of classes and modules: (name, part, value, owner, or None if it may run in
        # any case).
        self._members: list[tuple[str, str, object, type | ModuleType | None]] = []
        self._usage = Usage()
        self._contents: dict[int, ModuleType] = {}  # modules handed about as values where code runs
        self._mentioned: dict[int, ModuleType] = {}  # likewise where none does
        self._kernel_names: dict[str, bytes] = {}
        self._readers: dict[str, str] = {}  # attributes that would answer from outside -> of what
        self._unread: list[tuple[str, NotCacheable]] = []  # attributes that must not be read, and why
        self._classes: dict[int, type] = {}  # those that no version pins
        self._abstract: dict[int, ABCMeta] = {}
        self._compiled: list[tuple[str, object]] = []  # attributes that hold compiled functions
        self._set_up: set[str] = set()  # pinned modules within reach that go by how they were set up
        self._alone_only = False  # one value, whatever the process has set up

    def run(self, function: object, values: tuple[object, ...]) -> None:
        """Walk from a function that is called, and values that it is given."""
        self.enter("`{}`", name_root(function))
        self._root(function)
        self.leave()
        self.enter("constexpr values")
        self.parts["values"] = self.encode(values)
        self.leave()
        self._finish()
        self._encode_surroundings()
        self._finish()
        self._refuse_readers()
        self.lenient = True
        if "set_name_prefix" not in self._usage.names:
            self.parts.update(self._kernel_names)
        for place, function in surroundings.patches_of_the_dsl() if not self._alone_only else ():
            self.parts[f"patch of {place}"] = self.encode(function)
        self._finish()
        while self._mentioned:
            module = self._mentioned.pop(next(iter(self._mentioned)))
            if id(module) not in self._contents:
                self._hand_about(module)
                self._finish()

    def _finish(self) -> None:
        """Visit what waits, and the members of classes that turn out to be used, until nothing is left."""
        while True:
            while self._waiting:
                self._waiting.pop(0)()
            members, self._members = self._members, []
            found = False
            for member in members:
                name, part, value, owner = member
                if self.lenient and (name == "__doc__" or {type(owner), type(value)} == {ModuleType}):
                    continue  # read by nobody, or a module whose files count
                if self.lenient or owner is None or self._usage.runs(name, owner):
                    found = True
                    self.enter("`{}` of {}", name, part)
                    self.parts[part] = frame("with", self.parts[part], text(name), self.encode(value))
                    self.leave()
                else:
                    self._members.append(member)
            if not found and not self._waiting:
                return

    def _encode_surroundings(self) -> None:
        """Encode what the process has set up, as far as the program goes by it."""
        for module in sorted(self._set_up):
            names, setup = surroundings.SETUPS[module]
            if names is None or any(map(self._usage.reads, names)):
                with self.leniently():
                    self.parts[f"setup of {module}"] = self.encode(setup())
        for name, held in self._compiled:
            if self._usage.reads(name):
                self.parts[f"compiled functions in {name}"] = self.encode(held)
        classes = list(self._classes.values())
        for abstract in self._abstract.values():
            claimed = [label_of(cls) for cls in surroundings.claimed(abstract, classes)]
            if not is_pinned(abstract):
                claimed += surroundings.registered(abstract)
            if claimed:
                self.parts[f"registered with {label_of(abstract)}"] = frame("registered", *map(text, claimed))

    def _refuse_readers(self) -> None:
        """Refuse what was let pass as long as nothing reads it, and is read."""
        for name, refusal in self._unread:
            if self._usage.reads(name):
                raise refusal
        for name, holder in self._readers.items():
            if self._usage.reads(name):
                raise NotCacheable(
                    f"{holder} answers from outside the program, and `{name}`, by which it does, is read while the "
                    "program is traced; read it before, and pass what it gives as a constexpr value"
                )

    def holds(self, kind: type, reading: frozenset[str]) -> None:
        """Note an object of a pinned class; what it reads must not be used."""
        self._note_setup(kind.__module__)
        if reading - self._readers.keys():
            holder = f"{self.where()}, a {kind.__module__}.{kind.__qualname__},"
            for name in reading:
                self._readers.setdefault(name, holder)

    def links(self, path: str) -> None:
        """Have the file count, whatever reads it."""
        self.files[path] = None

    def reads_by_value(self) -> None:
        """Take it that any attribute may be read."""
        self._usage.computed = True

    def encode_attribute(self, name: str, held: object, owner: type) -> bytes:
        """Encode an attribute; one whose content can't be told, such as a lock, must not be read.

        Functions that were compiled from an object and are kept on it count only where they are read.
        """
        if _keeps_compiled(held) and _is_read_by_name(owner) and not hasattr(owner, "__dataclass_fields__"):
            self._compiled.append((name, held))
            return frame("compiled")
        depth, opened, lowest = len(self._path), dict(self._open), self._lowest
        try:
            return self.encode(held)
        except NotCacheable as refusal:
            if len(self._path) > depth or is_dunder(name) or not _is_read_by_name(owner):
                raise
            self._unread.append((name, refusal))
        self._open, self._lowest = opened, lowest
        with self.leniently():
            return self.encode(held)

    def _label(self, thing: object, name: str) -> str:
        """Name a node once: things of one name are numbered in the order of the walk."""
        self.keep(thing)
        count = self._label_counts[name] = self._label_counts.get(name, 0) + 1
        label = self._labels[id(thing)] = name if count == 1 else f"{name}#{count}"
        return label

    def pinned(self, module: str, name: str) -> bytes:
        """Encode something that a version pins, by its name; refuse what reads the world."""
        if reads_world(module, name):
            self.refuse_world(f"{module}.{name}")
        self._note_setup(module)
        package = sources.pinned_package(module) or "python"
        self.parts[f"version of {package}"] = text(sources.version_of(package))
        return frame("pinned", text(module), text(name))

    def _note_setup(self, module: str) -> None:
        top = module.partition(".")[0]
        if top in surroundings.SETUPS and not self.lenient:
            self._set_up.add(top)

    def refuse_world(self, what: str) -> None:
        """Refuse a program that reads what no digest tells."""
        self.refuse(f"reads {what} while it is traced", "read it before, and pass what it gives as an argument")

    # --- functions

    def _root(self, function: object) -> None:
        """Encode what is called; the attributes of an object are parts of their own."""
        self._usage.names.add("__call__")
        own = getattr(function, "__dict__", {})
        if not isinstance(function, FunctionType | type) and isinstance(own, dict):
            for name, value in own.items():
                self.enter("attribute `{}`", name)
                self.parts[f"attribute {name}"] = self.encode_attribute(name, value, type(function))
                self.leave()
        self.parts["called"] = self.encode(function)

    def encode_function(self, function: FunctionType) -> bytes:
        """Refer to a function, which becomes a part, by its label."""
        if is_pinned(function):
            return self.pinned(function.__module__, function.__qualname__)
        code = code_of(function)
        if is_by_file(str(function.__globals__.get("__name__"))):
            return self._by_file(function)
        if sources.is_pinned_file(code.co_filename):
            return self._made_by_pinned(function, code)
        label = self._labels.get(id(function))
        if label is None:
            label = self._label(function, label_of(function))
            self._waiting.append(lambda: self._visit_function(function, code, label))
        return frame("function", text(label))

    def _by_file(self, thing: Any) -> bytes:  # noqa: ANN401
        self.modules[thing.__module__] = None
        return frame("by file", text(label_of(thing)))

    def _made_by_pinned(self, function: FunctionType, code: CodeType) -> bytes:
        """Encode a function made by a pinned package, such as a decorator's wrapper, by its name and what it holds."""
        module = str(function.__globals__.get("__name__"))
        held = {name: cell for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True)}
        for cache in ("cache_token", "dispatch_cache") if module == "functools" else ():  # of singledispatch
            held.pop(cache, None)
        return frame(
            "made by",
            self.pinned(module, code.co_qualname),
            *(frame("cell", text(name), self._cell(function, name, cell)) for name, cell in held.items()),
            *(() if held else (self.encode(function.__defaults__), self.encode(function.__kwdefaults__))),
            self._extras(function, ("__wrapped__", "register", "dispatch", "registry", "_clear_cache")),
        )

    def _cell(self, function: FunctionType, name: str, cell: CellType) -> bytes:
        try:
            content = cell.cell_contents
        except ValueError:
            return frame("empty cell")
        self.enter("closure variable `{}` of `{}`", name, label_of(function))
        encoded = self.encode(content)
        self.leave()
        return encoded

    def _extras(self, function: FunctionType, besides: tuple[str, ...] = ()) -> bytes:
        """Encode the attributes that were set on a function, but for the DSL's notes on its work."""
        state = function.__dict__
        if not state:
            return b""
        dsl = state.get("_dsl_cls") or type(state.get("_dsl_object"))
        decorated = state.get(_DECORATED) is not None
        prefixes = ("__pyir_", "_dsl_") if decorated else ("__pyir_",)
        notes = _TRACING_STATE.union(besides)
        extras = {key: value for key, value in state.items() if key not in notes and not key.startswith(prefixes)}
        if _KERNEL_NAME in state:
            self._kernel_names[f"kernel name of {label_of(function)}"] = self.encode(state[_KERNEL_NAME])
        if decorated:
            extras["_dsl"] = f"{dsl.__module__}:{dsl.__qualname__}"
        if not extras:
            return b""
        self.enter("attributes of `{}`", label_of(function))
        encoded = self.encode(extras)
        self.leave()
        return encoded

    def _visit_function(self, function: FunctionType, code: CodeType, label: str) -> None:
        content = read(code)
        if module := function.__globals__.get("__name__"):
            self.modules[module] = None
        self.files[code.co_filename] = None
        for path in content.linked:
            self.links(path)
        if not self.lenient:
            self._usage.add(content)
            if content.linked and "ffi" in content.names and not all(map(os.path.isfile, content.linked)):
                self.enter("`{}` ({}:{})", label, code.co_filename, line_of(code, "ffi"))
                self.refuse(f"links {', '.join(content.linked)}, which is no file", "name it by its whole path")
            if reading := READING_METHODS & content.names:
                self.enter("`{}` ({}:{})", label, code.co_filename, line_of(code, min(reading)))
                self.refuse_world(f"what lies outside it, by {min(reading)},")
        pieces = [content.digest, text(function.__name__), text(function.__qualname__)]  # kernels bear these names
        if annotations := function.__annotations__:
            with self.leniently():
                for name, annotation in annotations.items():
                    pieces += [text(name), self.encode(annotation)]
                    if isinstance(annotation, str) and _DECORATED in function.__dict__:  # the DSL evaluates it
                        pieces += [self._chain(function, chain, {}, label) for chain in _names_in(annotation)]
        if function.__defaults__ or function.__kwdefaults__:
            self.enter("defaults of `{}`", label)
            pieces += [frame("defaults"), self.encode(function.__defaults__), self.encode(function.__kwdefaults__)]
            self.leave()
        pieces += [frame("attributes"), self._extras(function)]
        imported: dict[str, object] = {}
        for statement in () if self.lenient else content.imports:
            imported.update(self._import(function, statement, label))
        pieces += [self._chain(function, chain, imported, label) for chain in content.chains]
        self.parts[f"function {label}"] = frame("function", *pieces)
        home = sys.modules.get(module) if module else None
        if content.names & _WHOLE_MODULES and isinstance(home, ModuleType):
            self.encode_module(home)

    def _import(self, function: FunctionType, statement: Import, label: str) -> Iterator[tuple[str, object]]:
        """Execute an import of a function's body, as tracing is about to, and give its variables."""
        name = statement.module
        if statement.level:
            package = function.__globals__.get("__package__") or function.__module__.rpartition(".")[0]
            name = importlib.util.resolve_name("." * statement.level + name, package)
        code = code_of(function)
        self.enter("`{}` ({}:{})", label, code.co_filename, code.co_firstlineno)
        module = self._imported(name)
        for attribute, variable in statement.bindings:
            if attribute == ".":
                yield variable, sys.modules.get(name.partition(".")[0], _MISSING)
            elif not attribute:
                yield variable, module
            else:
                value = getattr(module, attribute, _MISSING)
                if value is _MISSING and hasattr(module, "__path__"):
                    value = self._imported(f"{name}.{attribute}")
                yield variable, value
        self.leave()

    def _imported(self, name: str) -> object:
        self.modules[name] = None
        try:
            return importlib.import_module(name)
        except ImportError:
            return _MISSING  # tracing fails there too, or never gets there
        except Exception as error:
            self.refuse(f"imports {name}, which fails with {type(error).__name__}: {error}", "make that import work")
            return _MISSING

    def _chain(self, function: FunctionType, chain: Chain, imported: dict[str, object], label: str) -> bytes:
        """Resolve a name and the attributes read from it as far as it leads through modules; encode what is there."""
        first = chain.names[0]
        if chain.scope == "global":
            key = (id(function.__globals__), chain.names)
            if key not in self._globals:
                value = function.__globals__.get(first, _MISSING)
                if value is _MISSING:
                    value = getattr(function, "__builtins__", {}).get(first, _MISSING)
                encoded = self._resolved("global", value, chain, function, label)
                if self.lenient:
                    return encoded
                self._globals[key] = encoded
            return self._globals[key]
        if first in imported:
            return self._resolved("import", imported[first], chain, function, label)
        value = _closed_over(function, first)
        return b"" if value is _UNKNOWN else self._resolved("closure variable", value, chain, function, label)

    def _resolved(self, kind: str, value: object, chain: Chain, function: FunctionType, label: str) -> bytes:
        """Follow the attributes of a chain from its first value; what is plain data there becomes a part."""
        count, module = 1, None
        while count < len(chain.names) and isinstance(value, ModuleType):
            module = value
            value = getattr(module, chain.names[count], _MISSING)
            count += 1
        dotted = ".".join(chain.names[:count])
        if value is _MISSING:
            return frame("missing", text(dotted))
        relation = "read by" if kind == "global" else "of"
        self.enter("{0} `{1}` {2} `{3}` ({4.lines})", kind, dotted, relation, label, Where(function, chain.names[0]))
        if chain.names in _CALLED_BY_NAME and module is None and value in (getattr, hasattr):
            encoded = self.pinned("builtins", chain.names[0])  # of which the instructions tell what it reads
        else:
            encoded = self._found(module, chain.names[count - 1], value, chain.names[count:])
        self.leave()
        if not isinstance(value, FunctionType | type | ModuleType | BuiltinFunctionType):
            owner = function.__globals__.get("__name__") if kind == "global" else label
            part = f"{kind} {dotted} of {owner}"
            if self.parts.setdefault(part, encoded) != encoded:
                self.parts[part] = frame("also", self.parts[part], encoded)
        return frame("reads", text(dotted), encoded)

    def _found(self, module: ModuleType | None, name: str, value: object, attributes: tuple[str, ...]) -> bytes:
        """Encode a value that was found in `module`, if in one, and from which `attributes` are read."""
        package = sources.pinned_package(module.__name__) if module else None
        if module is None or package is None:
            if isinstance(value, type) and is_pinned(value) and attributes and not self.lenient:
                dotted = f"{value.__qualname__}.{attributes[0]}"
                if reads_world(value.__module__, dotted):
                    self.refuse_world(f"{value.__module__}.{dotted}")
            return self.encode(value)
        for dotted in (name, f"{name}.{attributes[0]}") if attributes else (name,):
            if not self.lenient and reads_world(module.__name__, dotted):
                self.refuse_world(f"{module.__name__}.{dotted}")
        kind = type(value)
        if isinstance(value, FunctionType | type | ModuleType) or not sources.pinned_package(kind.__module__):
            return self.encode(value)
        scalar = self.plain(value)
        return frame("of", self.pinned(module.__name__, name), scalar or text(f"{kind.__module__}.{kind.__qualname__}"))

    def encode_compiled(self, module: str) -> bytes:
        """Refer to a compiled extension, whose file counts."""
        self.modules[module] = None
        return text(module)

    def fresh(self) -> "Walk":
        """Make a walk that has seen nothing."""
        return Walk()

    def digest_alone(self, item: object, lenient: bool) -> bytes:
        """Digest one value and all it leads to."""
        self.lenient, self._alone_only = lenient, True
        self.run(None, (item,))
        parts = {**self.parts, "identities": self.identities}
        return frame("parts", *(piece for name, part in parts.items() for piece in (text(name), part)))

    # --- modules

    def encode_module(self, module: ModuleType) -> bytes:
        """Refer to a module that is handed about as a value: whatever is in it may be read."""
        name = module.__name__
        if sources.pinned_package(name):
            if not is_harmless(name):
                self.refuse(f"is the module {name}, of which anything may be read", "name what is read: `module.name`")
            with self.leniently():
                return self.pinned(name, "")
        self.modules[name] = None
        if self.lenient:
            self._mentioned[id(module)] = module
        elif id(module) not in self._contents:
            self._hand_about(module)
        return frame("module", text(name))

    def _hand_about(self, module: ModuleType) -> None:
        """Have all that a module holds digested: as code that runs what is used by name, as values the rest."""
        self._contents[id(module)] = module
        for name, value in list(vars(module).items()):
            if name == "__getattr__" or not is_dunder(name):
                part = f"{name} of module {module.__name__}"
                self.parts[part] = text(name)
                self._members.append((name, part, value, module))

    # --- classes

    def encode_class(self, cls: type, called: bool) -> bytes:
        """Refer to a class, which becomes a part, by its label; `called` says that objects may be made of it."""
        if isinstance(cls, ABCMeta) and not self.lenient:
            self._abstract[id(cls)] = cls
        if is_pinned(cls):
            if called and reads_world(cls.__module__, cls.__qualname__):
                self.refuse_world(f"{cls.__module__}.{cls.__qualname__}")
            return self._named_class(cls)
        if is_by_file(cls.__module__):
            return self._by_file(cls)
        label = self._labels.get(id(cls))
        if label is None:
            label = self._label(cls, label_of(cls))
            self._waiting.append(lambda: self._visit_class(cls, label))
        if called and not self.lenient:
            self._usage.called.update(map(id, cls.__mro__))
        return frame("class", text(label))

    def _named_class(self, cls: type) -> bytes:
        if not self.lenient and not cls.__module__.startswith("cutlass"):
            for place, function in surroundings.patches_of(cls, label_of(cls)):
                self.parts[f"patch of {place}"] = self.encode(function)
        package = sources.pinned_package(cls.__module__) or "python"
        self.parts[f"version of {package}"] = text(sources.version_of(package))
        return frame("pinned", text(cls.__module__), text(cls.__qualname__))

    def _visit_class(self, cls: type, label: str) -> None:
        self.modules[cls.__module__] = None
        if not self.lenient:
            self._classes[id(cls)] = cls
        is_enum = isinstance(cls, enum.EnumMeta)
        hooks = [base for base in cls.__mro__[1:] if base is not object and is_pinned(base)]
        pieces = [text(cls.__name__), *(self.encode(base, called=False) for base in (type(cls), *cls.__bases__))]
        if isinstance(cls.__doc__, str):
            self._members.append(("__doc__", f"class {label}", cls.__doc__, cls))
        for name, value in list(vars(cls).items()):
            if name in _DERIVED or (is_enum and name in _DERIVED_OF_ENUMS):
                continue
            pieces.append(text(name))
            functions = list(functions_of(value))
            if functions:
                pieces += [read(code_of(function)).digest for function in functions]
                hooked = any(hasattr(base, name) for base in hooks)  # so that the base's own code may call it
                self._members.append((name, f"class {label}", value, None if hooked else cls))
            elif type(value) not in (GetSetDescriptorType, MemberDescriptorType):
                self.enter("class attribute `{}` of `{}`", name, label)
                with self.leniently(name in _ANNOTATIONS):
                    encoded = self.encode_attribute(name, value, cls)
                self.leave()
                if is_dunder(name):
                    pieces.append(encoded)
                else:
                    self.parts[f"class attribute {name} of {label}"] = encoded
        self.parts[f"class {label}"] = frame("class", *pieces)


def _closed_over(function: FunctionType, name: str) -> object:
    names = code_of(function).co_freevars
    if name not in names or function.__closure__ is None:
        return _UNKNOWN  # a variable of its own, which nested code reads
    try:
        return function.__closure__[names.index(name)].cell_contents
    except ValueError:
        return _MISSING


@functools.cache
def _names_in(annotation: str) -> tuple[Chain, ...]:
    """Give the names that an annotation reads which was left as text."""
    try:
        return read(compile(annotation, "<annotation>", "eval")).chains
    except (SyntaxError, ValueError):  # just a text
        return ()


def _is_read_by_name(owner: type) -> bool:
    """Tell whether attributes of a class's objects are read by code that is walked, not by that of a pinned base."""
    bases = (base for base in owner.__mro__ if base not in (object, ABC, Generic, Protocol))
    return not isinstance(owner, enum.EnumMeta) and not any(map(is_pinned, bases))


def _keeps_compiled(value: object) -> bool:
    """Tell whether a value is a function that cutepy compiled, or a dict or list of such, which may be empty yet."""
    items: Any = value.values() if type(value) is dict else value if type(value) is list else (value,)
    return not items or any(type(item).__module__.startswith("cutepy.host.") for item in items)
