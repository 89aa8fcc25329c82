"""Terms: names with arguments, in the syntax of C++, Python or MLIR.

.. code-block:: text

    term      = name [ "<" [ literals ] ">" ] [ "(" [ arguments ] ")" | "{" [ arguments ] "}" ]
              | "#" name "<" fields { "," name "=" literal } ">"
    fields    = "{" [ name "=" literal { "," name "=" literal } ] "}"
    arguments = argument { "," argument } [ "," ]
    argument  = [ name "=" ] literal
    literal   = term | integer | string | "(" ... ")" | "[" ... "]" | "{" string ":" literal ... "}" | value

Each name is a function of a table, and Python binds the arguments to its parameters: a name that no table has, an
argument that no parameter takes, and a token that no rule consumes are errors at their place.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

from ..errors import ParseError
from .tokens import Token, plain

DYNAMIC = frozenset("int long unsigned int32_t int64_t uint32_t uint64_t".split())
"""C++ types whose value only the running program knows."""

_TYPES = DYNAMIC | {"short", "char", "size_t", "std::size_t"}
_SUFFIXES = frozenset("u l ul ull ll lu".split())

_NAMESPACES = frozenset(
    (
        "cute:: cutlass:: std:: cute. cutlass. cutlass.cute. cutepy. cutepy.layouts. layouts. sm80. sm90. linear. "
        "cutepy.layouts.sm80. cutepy.layouts.sm90. cutepy.layouts.linear. pycute. ttgl. gl. gluon. language. "
        "#ttg. #triton_gpu. #"
    ).split()
)
_MEMORY_DESCRIPTORS = ("!ttg.memdesc", "!triton_gpu.memdesc")
_ALIAS = re.compile(r"^[ \t]*(?P<name>#\w+)[ \t]*=[ \t]*(?=\#\w+\.\w+(?:<|&lt;))", re.MULTILINE)
_TENSOR_SHAPE = re.compile(
    r"""\s* (?P<extents> (?: \d+ x )+ ) \s*
    (?: [a-z]\w* | !tt\.ptr \s* (?: < | &lt; ) \s* [a-z]\w* \s* (?: , \s* \d+ \s* )? (?: > | &gt; ) )
    \s* , \s* (?= \# )""",
    re.IGNORECASE | re.ASCII | re.VERBOSE,
)
"""The shape and the element type of a tensor; that of a tensor of pointers may have an address space."""
_ALLOCATED = re.compile(r"\s*,\s*(?P<extents>\d+(?:x\d+)*)(?=\s*(?:,|>|&gt;))", re.ASCII)


def _constructors() -> Any:  # noqa: ANN401 - the module
    """Load the tables when the first term is read: they need the hardware's, which few texts do."""
    from . import constructors

    return constructors


class Alias(NamedTuple):
    """A definition ``#blocked = #ttg.blocked<...>``: from the name's first character, and its value's."""

    name: str
    start: int
    value_start: int


@lru_cache(maxsize=8)
def aliases_of(text: str) -> Mapping[str, Alias]:
    """Find the aliases that a text of MLIR defines.

    Raises
    ------
    ParseError
        If one is defined twice.

    >>> aliases_of("#blocked = #ttg.blocked<{}>")["#blocked"].value_start
    11
    """
    found: dict[str, Alias] = {}
    for match in _ALIAS.finditer(plain(text)):
        name = match["name"]
        if name in found:
            raise ParseError(text, match.start("name"), f"the alias {name} is defined twice")
        found[name] = Alias(name, match.start("name"), match.end())
    return found


def known(name: str) -> bool:
    """Return whether a word begins a term."""
    if name in _MEMORY_DESCRIPTORS:
        return True
    space, own = _parted(name)
    if space in ("", "cute::") and re.fullmatch(r"_\d+", own):
        return True
    return space is not None and own in _constructors().NAMES[bool(space) and space[0] == "#"]


def unread(reader: Any) -> ParseError:  # noqa: ANN401
    """Return the error for an unknown word; if it has arguments, name the known constructors."""
    token: Token = reader.token
    opening = plain(reader.text)[token.end : token.end + 1]
    if opening not in ("(", "<", "{"):
        error: ParseError = reader.unexpected("an integer, '_', '(', '<' or a swizzle")
        return error
    makers = _constructors().TEMPLATES if opening == "<" else _constructors().CALLS
    ending = r"Layout$" if token.text.endswith("Layout") else r"(?i)layout|swizzle|composition|^tile$"
    read = ", ".join(name for name in sorted(makers) if re.search(ending, name))
    unknown = f"expected a constructor that is read, got {token.text!r}; these are: {read}"
    error = reader.error(token.start, unknown)
    return error


def _parted(name: str) -> tuple[str | None, str]:
    """Split a qualified name: (namespace with its separator, name); None for an unknown namespace."""
    own = re.split(r"::|\.|#", name)[-1]
    space = name[: len(name) - len(own)]
    return (space if not space or space in _NAMESPACES else None), own


def term(reader: Any) -> Any:  # noqa: ANN401 - Reader, and any value
    """Read a term, and return the result of its constructor."""
    head = reader.token
    if head.text.startswith("#"):
        return _attribute(reader)
    if head.text.startswith("!"):
        return _memory_descriptor(reader)
    space, name = _parted(head.text)
    if space is None or (name not in _constructors().TEMPLATES and name not in _constructors().CALLS):
        if name in _constructors().CONSTANTS and space is not None:
            reader.advance()
            _empty_braces(reader)
            return _constructors().CONSTANTS[name]
        if re.fullmatch(r"_\d+", name) and space in ("", "cute::"):
            reader.advance()
            _empty_braces(reader)
            return int(name[1:])
        raise unread(reader)
    reader.advance()
    if reader.token.kind == "<":
        return _template(reader, head, name)
    make = _constructors().CALLS.get(name)
    if make is None or reader.token.kind not in ("(", "{"):
        raise reader.unexpected(f"'<' after {name}" if make is None else f"'(' after {name}")
    return _called(reader, head, name, make)


def _template(reader: Any, head: Token, name: str) -> Any:  # noqa: ANN401
    """Read ``Name<...>``, perhaps an object of that type: ``Name<...>{}``."""
    make = _constructors().TEMPLATES.get(name)
    if make is None:
        raise reader.unexpected(f"'(' after {name}")
    reader.expect("<")
    if name in ("constant", "integral_constant"):
        if reader.token.text not in _TYPES:
            raise reader.unexpected("an integer type")
        while reader.token.text in _TYPES:  # `unsigned long` has two words
            reader.advance()
        reader.expect(",")
    items = _items(reader, ">")
    _empty_braces(reader)
    return _make(reader, head, name, make, items, {})


def _empty_braces(reader: Any) -> None:  # noqa: ANN401
    for opening, closing in (("{", "}"), ("(", ")")):
        if reader.token.kind == opening:
            reader.advance()
            reader.expect(closing)
            return


def _called(reader: Any, head: Token, name: str, make: Callable[..., Any]) -> Any:  # noqa: ANN401
    """Read ``name(literal, key=literal)``."""
    closing = {"(": ")", "{": "}"}[reader.advance().kind]
    items: list[Any] = []
    named: dict[str, Any] = {}
    while reader.token.kind != closing:
        key = _key(reader)
        if key is not None:
            _check_new(reader, key, named)
            named[key.text] = literal(reader)
        elif named:
            raise reader.unexpected("an argument with a name, as the one before has")
        else:
            items.append(literal(reader))
        if not reader.accept(","):
            break
    reader.expect(closing, f"',' or {closing!r}")
    return _make(reader, head, name, make, items, named)


def _key(reader: Any) -> Token | None:  # noqa: ANN401
    """Take ``name =`` if it comes next."""
    token: Token = reader.token
    if token.kind not in ("word", "o") or not token.text.isidentifier():
        return None
    reader.advance()
    if reader.accept("="):
        return token
    reader.index -= 1
    return None


def _check_new(reader: Any, key: Token, named: Mapping[str, Any]) -> None:  # noqa: ANN401
    if key.text in named:
        raise reader.error(key.start, f"{key.text} is given twice")


def fields(reader: Any, closing: str) -> dict[str, Any]:  # noqa: ANN401
    """Read ``name = literal, ...`` up to a closing symbol, which stays."""
    named: dict[str, Any] = {}
    while reader.token.kind != closing:
        key = _key(reader)
        if key is None:
            raise reader.unexpected("a name and '='")
        _check_new(reader, key, named)
        named[key.text] = literal(reader)
        if not reader.accept(","):
            break
    return named


def _attribute(reader: Any) -> Any:  # noqa: ANN401
    """Read an attribute of Triton's dialect, or the alias of one."""
    head = reader.advance()
    space, name = _parted(head.text)
    if space == "#" and reader.token.kind != "<":
        return _alias(reader, head)
    make = _constructors().ATTRIBUTES.get(name)
    if make is None or space in (None, "#"):
        read = ", ".join(f"#ttg.{known}" for known in sorted(_constructors().ATTRIBUTES))
        raise reader.error(head.start, f"{head.text} is no layout that is read; these are: {read}")
    reader.expect("<")
    reader.expect("{")
    named = fields(reader, "}")
    reader.expect("}", "',' or '}'")
    if reader.accept(","):
        for key, value in fields(reader, ">").items():
            if key in named:
                raise reader.error(head.start, f"{key} is given twice")
            named[key] = value
    reader.expect(">", "',' or '>'")
    return _make(reader, head, head.text, make, [], named)


def _alias(reader: Any, head: Token) -> Any:  # noqa: ANN401
    alias = aliases_of(reader.text).get(head.text)
    if alias is None:
        raise reader.error(head.start, f"{head.text} is not defined in the text; add its line, {head.text} = #ttg....")
    if alias.name in reader.within:
        raise reader.error(head.start, f"the alias {head.text} is defined by itself")
    reader.aliases.add(alias.name)
    definition = type(reader)(reader.text, alias.value_start, reader.given)
    definition.within = {*reader.within, alias.name}
    value = literal(definition)
    reader.aliases |= definition.aliases
    return value


def _memory_descriptor(reader: Any) -> Any:  # noqa: ANN401
    """Read ``!ttg.memdesc<64x64xf16, #shared, #smem, mutable, 3x64x64>``.

    The memory's name, its mutability and the shape of the allocation that holds it are no part of the layout. The
    innermost extents of an allocation are at least those of its view.
    """
    head = reader.advance()
    if head.text not in _MEMORY_DESCRIPTORS:
        raise reader.error(head.start, f"{head.text} is no type that is read; !ttg.memdesc is")
    reader.expect("<")
    view = _TENSOR_SHAPE.match(plain(reader.text), reader.end)
    value = shaped_type(reader)
    if view is None or value is None:
        raise reader.unexpected("a shape, an element type and a layout, as 64x64xf16, #shared")
    while reader.token.kind == ",":
        allocated = _ALLOCATED.match(plain(reader.text), reader.end)
        if allocated is not None:
            _check_allocated(reader, allocated, _extents(view))
            reader.skip_to(allocated.end())
            break  # the last part of the type
        reader.advance()
        word = reader.expect("word", "#smem, mutable or the allocated shape").text
        if word not in ("#smem", "#ttg.shared_memory", "mutable"):
            raise reader.error(reader.tokens[reader.index - 1].start, f"expected #smem or mutable, got {word!r}")
    reader.expect(">")
    return value


def _extents(match: re.Match[str]) -> tuple[int, ...]:
    return tuple(int(extent) for extent in match["extents"].strip("x").split("x"))


def _check_allocated(reader: Any, allocated: re.Match[str], view: tuple[int, ...]) -> None:  # noqa: ANN401
    """Check that an allocation has as many dimensions as its view, or more, and that the view fits in it."""
    shape = _extents(allocated)
    if len(shape) < len(view) or any(n > m for n, m in zip(view, shape[-len(view) :], strict=True)):
        shown = "x".join(map(str, view))
        raise reader.error(
            allocated.start("extents"), f"expected an allocated shape that holds {shown}, got {allocated['extents']}"
        )


def shaped_type(reader: Any) -> Any:  # noqa: ANN401
    """Read ``64x64xf16, #blocked`` if it comes next: the layout of a tensor of that shape; None if not."""
    match = _TENSOR_SHAPE.match(plain(reader.text), reader.end)
    if match is None:
        return None
    start = match.start("extents")
    reader.skip_to(match.end())
    encoding = literal(reader)
    shape = _extents(match)
    if not _constructors().is_encoding(encoding):
        raise reader.error(start, f"a tensor's layout must be an encoding of Triton's, got {type(encoding).__name__}")
    return reader.build(start, encoding.to_linear, shape)


def _make(
    reader: Any,  # noqa: ANN401
    head: Token,
    name: str,
    make: Callable[..., Any],
    items: list[Any],
    named: dict[str, Any],
) -> Any:  # noqa: ANN401
    try:
        inspect.signature(make).bind(*items, **named)
    except TypeError as error:
        raise reader.error(head.start, f"{name}: {error}") from None
    try:
        return reader.build(head.start, partial(make, **named), *items)
    except (ArithmeticError, AssertionError, AttributeError, LookupError) as error:
        kinds = ", ".join(type(item).__name__ for item in (*items, *named.values()))
        raise reader.error(head.start, f"{name} can't be made of {kinds}: {error}") from error


def _items(reader: Any, closing: str) -> list[Any]:  # noqa: ANN401
    """Read literals with commas between, and the closing symbol."""
    items: list[Any] = []
    while reader.token.kind != closing or (items and closing == ">"):  # C++ has no comma after the last argument
        items.append(literal(reader))
        if not reader.accept(","):
            break
    reader.expect(closing, f"',' or {closing!r}")
    return items


def literal(reader: Any) -> Any:  # noqa: ANN401
    """Read an argument: round brackets around one item without a comma only group, as in Python."""
    token = reader.token
    if token.kind == "word":
        if token.text in ("true", "false", "True", "False"):
            return reader.advance().text.lower() == "true"
        if token.text in DYNAMIC:
            return reader.open_number(_dynamic_type(reader))
        return term(reader)
    if token.kind == "string":
        return reader.advance().text[1:-1]
    if token.kind == '"':
        return _quoted(reader)
    if token.kind == "hex":
        return int(reader.advance().text, 16)
    if token.kind == "[":
        reader.advance()
        return _items(reader, "]")
    if token.kind == "{":
        return _dictionary(reader)
    if token.kind == "(":
        first = reader.index
        reader.advance()
        if reader.token.text in DYNAMIC:  # a cast, as nvcc writes constants: (int)64
            _dynamic_type(reader)
            reader.expect(")")
            return reader.integer()
        items = _items(reader, ")")
        if reader.token.kind == ":":
            reader.index = first
            return reader.value()
        grouped = len(items) == 1 and reader.tokens[reader.index - 2].kind != ","
        return items[0] if grouped else tuple(items)
    value = reader.value()
    if token.kind == "int" and reader.tokens[reader.index - 1] is token:
        if token.text.startswith("_"):
            _empty_braces(reader)
        elif reader.token.start == token.end and reader.token.text.lower() in _SUFFIXES:
            reader.advance()
    return value


def _dynamic_type(reader: Any) -> Token:  # noqa: ANN401
    """Take a type of C++, which may have several words: ``unsigned long long``."""
    token: Token = reader.advance()
    while reader.token.text in DYNAMIC:
        token = token._replace(text=f"{token.text} {reader.advance().text}")
    return token


def _quoted(reader: Any) -> str:  # noqa: ANN401
    start = reader.advance().end
    end = plain(reader.text).find('"', start)
    if end < 0:
        raise reader.error(start - 1, "this quotation mark is not closed")
    reader.skip_to(end + 1)
    return str(reader.text[start:end])


def _dictionary(reader: Any) -> dict[str, Any]:  # noqa: ANN401
    reader.expect("{")
    named: dict[str, Any] = {}
    while reader.token.kind != "}":
        start = reader.token.start
        key = literal(reader) if reader.token.kind in ("string", '"') else None
        if key is None:
            raise reader.unexpected("a name in quotation marks")
        if key in named:
            raise reader.error(start, f"{key} is given twice")
        reader.expect(":")
        named[key] = literal(reader)
        if not reader.accept(","):
            break
    reader.expect("}", "',' or '}'")
    return named


SHAPE_AND_STRIDE = re.compile(r"(?:\w+\.)*(?:shape|stride|strides)", re.IGNORECASE)


def shape_and_stride(reader: Any) -> Any:  # noqa: ANN401
    """Read ``shape=(4,8) stride=(8,1)``, as programs print the two of a tensor: ``x.shape`` goes with ``x.stride``."""
    start = reader.token.start
    tensor = reader.token.text.rpartition(".")[0]
    shape = _told(reader, "shape")
    reader.accept(",")
    of, _, name = reader.token.text.rpartition(".")
    if name.lower() not in ("stride", "strides") or of != tensor:
        raise reader.unexpected(f"'{tensor}{'.' if tensor else ''}stride=' after the shape")
    stride = _told(reader, "stride")
    return reader.build(start, _constructors().make_layout, shape, stride)


def _told(reader: Any, name: str) -> Any:  # noqa: ANN401
    reader.advance()
    if reader.token.kind == "(":  # a method that was called: stride()
        first = reader.index
        reader.advance()
        if not reader.accept(")"):
            reader.index = first
    if not reader.accept("="):
        reader.accept(":")
    start = reader.token.start
    if reader.token.kind == "word" and reader.token.text == "torch.Size":
        reader.advance()
        if reader.token.kind != "(":
            raise reader.unexpected("'(' after torch.Size")
    value = literal(reader)
    if isinstance(value, list):
        value = tuple(value)
    if not _constructors().is_int_tuple(value):
        raise reader.error(start, f"expected the {name}, an integer or a tuple of integers, got {type(value).__name__}")
    return value
