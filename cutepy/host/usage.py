"""Which names a traced program uses, which decides what of classes, modules and objects it may come to."""

from types import ModuleType

from cutepy.host.bytecode import Code
from cutepy.host.naming import is_dunder

# Methods that Python and its library call by name: `f(**x)`, `with closing(x)`, `print(file=x)`.
_IMPLICIT = frozenset({"close", "flush", "keys", "write"})
# Methods that run only where an object is made.
_CONSTRUCTORS = frozenset(
    {"__init__", "__new__", "__post_init__", "__init_subclass__", "__class_getitem__", "__set_name__"}
)


class Usage:
    """The names that code uses, as far as a walk has come.

    Attributes
    ----------
    names : set of str
        Names of any kind, and strings that could be some.
    attributes : set of str
        Those that may be read from a value.
    computed : bool
        Whether attributes are read by names that are computed, so that it may be any.
    constructs : bool
        Whether objects are made of classes that are not named.
    called : set of int
        Ids of classes of which objects may be made.
    """

    def __init__(self) -> None:
        self.names: set[str] = set(_IMPLICIT)
        self.attributes: set[str] = set()
        self.computed = self.constructs = False
        self.called: set[int] = set()

    def add(self, code: Code) -> None:
        """Count what a piece of code uses."""
        self.names |= code.names
        self.attributes |= code.attributes
        self.computed |= code.computed
        self.constructs |= code.constructs

    def reads(self, name: str) -> bool:
        """Tell whether an attribute of this name may be read from some value."""
        return self.computed or name in self.attributes

    def runs(self, name: str, owner: type | ModuleType) -> bool:
        """Tell whether what a class or module has under a name may be used."""
        if name == "__doc__":
            return name in self.attributes
        if isinstance(owner, ModuleType):
            value = vars(owner).get(name)
            imported = isinstance(value, ModuleType) and not value.__name__.startswith(f"{owner.__name__}.")
            computed = self.computed and not imported  # a name that is computed means what a module is for
            return computed or name in self.attributes or is_dunder(name)
        if name in _CONSTRUCTORS:
            return self.constructs or id(owner) in self.called
        return self.computed or name in self.names or is_dunder(name)
