"""The module `main` as test code sees it: proxies for what lives in the process of the code under test.

Whatever that process says is checked to be data of known types and used as data. It is asked about its own objects,
never how one of them compares with a value of the tests: it could say what it likes, and would learn what is expected.
For the same reason an object may be asked only what the reference's objects were asked (`CandidateLink.may`) when the
question holds a value of the tests. Otherwise `abs(main.root(2) - 1.41421) < 1e-5` would be up to its own `__sub__`.
"""

import operator
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from . import wire
from .remote import EXCEPTIONS, Table, ancestry, decode_copied, encode_copied
from .wire import Tree
from .words import words

_NEVER_RAISED = (KeyboardInterrupt, GeneratorExit)
"""Exceptions that mean something to the test runner itself."""


_QUESTIONS: dict[str, Callable[..., Any]] = {
    "call": lambda function, *arguments, **keywords: function(*arguments, **keywords),
    "iter": iter,
    "next": next,
}
"""What the other side may ask about an object of the tests."""


_KINDS = ("value", "raised", "callback")
_MOST_NOTES, _LONGEST_NOTE = 100, 200
_CONSTANT = (str, int, float, complex, bytes, tuple, frozenset)
_PLAIN = (*_CONSTANT, list, set, dict)
"""What an object of a derived class may be as a builtin value; the first of these never change."""
_HARMLESS = ("keys", "values", "items")
"""Methods that may be asked for in any case: they take no arguments, and so learn nothing."""


class CandidateLink:
    """The connection to the code under test."""

    def __init__(
        self,
        descriptor: int,
        limits: dict[str, Any],
        lost: Callable[[str], NoReturn],
        allowed: Sequence[str] | None = None,
    ) -> None:
        """Speak over a descriptor.

        Args:
            descriptor: the socket.
            limits: see `Limits`.
            lost: called with `crashed` or `garbage` when there is nothing more to be had from the other side.
            allowed: what `asked` was with the reference; None for the reference itself.
        """
        self._descriptor = descriptor
        self._lost = lost
        self._max_bytes = limits["frame_mb"] << 20
        self._encoder = wire.Encoder(limits["nodes"], limits["depth"], limits["frame_mb"], self._encode)
        self._ours = Table()
        self._proxies: dict[int, Proxy] = {}
        self._classes: dict[tuple[Any, ...], type[BaseException]] = {}
        self._allowed = None if allowed is None else frozenset(allowed)
        self.asked: set[str] = set()
        """What was asked of the reference's objects that an answer's object might answer as it likes: operators with a
        value of the tests, `contains`, `.name` for an attribute, `swallow Class` for an exception that a context
        manager let pass, `* name` for a name that `from main import *` gives."""
        self.taken_names: frozenset[str] = frozenset()
        """Names that the tests themselves define; `from main import *` leaves them alone."""
        self._constants: dict[int, Any] = {}
        self._output: list[str] = []
        self._output_left = limits["output_kb"] << 10
        self._blocked: list[Any] = []
        self.failures: list[Exception] = []
        """What fails a test whether or not it is let through: assertions in functions of the tests that the other side
        called, and what the tests did that cannot be done here."""

    def may(self, question: str) -> bool:
        """Whether an object may be asked this."""
        self.asked.add(question)
        return self._allowed is None or question in self._allowed

    def fail(self, reason: str) -> TypeError:
        """The exception for what cannot be done here, which a test that expects one must not take for the answer's."""
        self.failures.append(error := TypeError(reason))
        return error

    def plain(self, proxy: "Proxy") -> tuple[Any, ...]:
        """What an object is as a builtin value, as one item, or none; said before it is known what for.

        A constant is asked for once: it must not be another value in the next comparison.
        """
        number = _number(proxy)
        if number in self._constants:
            return (self._constants[number],)
        answer = self.operate("plain", proxy)
        if type(answer) is not tuple or [type(value) for value in answer if type(value) not in _PLAIN]:
            self._lost("garbage")
        if answer and type(answer[0]) in _CONSTANT:
            self._constants[number] = answer[0]
        return answer[:1]

    def star(self) -> list[str]:
        """The names that `from main import *` gives: those that the reference has, too."""
        names = self.ask("names")
        if type(names) is not list:
            self._lost("garbage")
        given = [name for name in names if isinstance(name, str) and name not in self.taken_names]
        return [name for name in given if self.may(f"* {name}")]

    def operate(self, operation: str, /, *arguments: Any, **keywords: Any) -> Any:
        """Have the other side do something with its objects, and return or raise what comes of it."""
        encoded = {"arguments": self._tree(list(arguments)), "keywords": self._tree(keywords)}
        return self.ask("operate", operation=operation, **encoded)

    def ask(self, do: str, **fields: Any) -> Any:
        """Send a request, answer the questions that come back, and return or raise the result."""
        nonce = os.urandom(8).hex()
        self._send({"nonce": nonce, "do": do, **fields})
        while True:
            kind, payload = self._receive(nonce)
            if kind == "callback":
                self._send(self._called_back(payload))
                continue
            if kind == "raised":
                raise self._understood(self._exception, payload)
            return self._understood(self._value, payload)

    def _tree(self, value: Any) -> Tree:
        try:
            return self._encoder.encode(value)
        except wire.NotPlain as error:
            raise self.fail(f"cannot be handed to the code under test: it {error}") from None

    def _value(self, tree: Tree) -> Any:
        return wire.decode(tree, self._decode)

    def _send(self, message: dict[str, Any]) -> None:
        try:
            wire.send(self._descriptor, wire.frame(message))
        except wire.Closed:
            self._lost("crashed")

    def _receive(self, nonce: str) -> tuple[str, Any]:
        try:
            message = wire.receive(self._descriptor, self._max_bytes)
        except wire.Closed:
            self._lost("crashed")
        except (ValueError, RecursionError, MemoryError):
            self._lost("garbage")
        if not (isinstance(message, list) and len(message) == 5 and message[0] == nonce and message[1] in _KINDS):
            self._lost("garbage")
        _, kind, payload, output, blocked = message
        if not (isinstance(output, str) and isinstance(blocked, list)):
            self._lost("garbage")
        self._note(output, blocked)
        return kind, payload

    def _note(self, output: str, blocked: list[Any]) -> None:
        """Keep what came with an answer, up to the limits that the other side should have kept to."""
        output = output[: self._output_left].encode("utf-8", "backslashreplace").decode()
        self._output_left = max(self._output_left - len(output), 0)
        sys.stdout.write(output)
        self._output.append(output)
        self._blocked += [
            note[:_LONGEST_NOTE] for note in blocked[: _MOST_NOTES - len(self._blocked)] if isinstance(note, str)
        ]

    def take_notes(self) -> tuple[str, list[Any]]:
        """What the other side printed since the last call, and what it tried that it may not."""
        notes = "".join(self._output), self._blocked
        self._output, self._blocked = [], []
        return notes

    def _understood(self, read: Callable[[Tree], Any], payload: Tree) -> Any:
        try:
            return read(payload)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError):
            self._lost("garbage")

    def _called_back(self, payload: Any) -> dict[str, Any]:
        def read(question: Any) -> tuple[Any, str, list[Any], dict[str, Any]]:
            number, operation, arguments, keywords = question
            return self._ours[number], operation, self._value(arguments), self._value(keywords)

        item, operation, arguments, keywords = self._understood(read, payload)
        try:
            value = _QUESTIONS[operation](item, *arguments, **keywords)
            return {"nonce": "", "do": "answer", "value": self._tree(value)}
        except Exception as error:
            if isinstance(error, AssertionError):
                self.failures.append(error)
            return {"nonce": "", "do": "fail", "kind": self._tree(type(error)), "message": str(error)}

    def _encode(self, value: Any, encode: Callable[[Any], Tree]) -> Tree:
        copied = encode_copied(value, encode)
        if copied is not None:
            return copied
        if isinstance(value, Proxy):
            return ["h", _number(value)]
        if isinstance(value, Main):
            return ["m"]
        if isinstance(value, type) and issubclass(value, BaseException):
            return ["x", ancestry(value, lambda kind: getattr(kind, "number_there", None))]
        if callable(value) or hasattr(value, "__next__"):
            named = (getattr(value, name, None) for name in ("__name__", "__doc__"))
            return ["g", self._ours.number(value), *(text if isinstance(text, str) else None for text in named)]
        raise wire.NotPlain(f"is or holds an object of type {type(value).__name__}")

    def _decode(self, tag: str, parts: list[Tree]) -> Any:
        if tag == "p":
            return decode_copied(parts[0], self._value(parts[1]))
        if tag == "h":
            return self._proxy(parts[0])
        if tag == "g":
            return self._ours[parts[0]]
        if tag == "m":
            return sys.modules["main"]
        if tag == "x":
            return self._class(parts[0])
        raise ValueError

    def _proxy(self, number: Any) -> "Proxy":
        if type(number) is not int:
            raise TypeError
        return self._proxies.setdefault(number, Proxy(self, number))

    def _class(self, lineage: list[Tree]) -> type[BaseException]:
        """The exception class of this ancestry: a builtin one, or one of ours that stands for one over there."""
        name, number, ancestors = lineage
        if number is None:
            kind = EXCEPTIONS[name]
            return Exception if issubclass(kind, _NEVER_RAISED) else kind
        key = (name, number)
        if key not in self._classes:
            bases = tuple(dict.fromkeys(map(self._class, ancestors)))
            if not bases:
                raise TypeError
            self._classes[key] = type(str(name), bases, {"number_there": number, "__getattr__": _attribute_there})
        return self._classes[key]

    def _exception(self, payload: Any) -> BaseException:
        lineage, message, arguments, number, cause, within = payload
        kind = self._class(lineage)
        if issubclass(kind, BaseExceptionGroup):
            given = [str(message).partition(" (")[0], [self._exception(each) for each in within]]
        else:
            given = self._value(arguments) if isinstance(arguments, list) else [message]
        try:
            error = kind(*given)
        except Exception:
            error = kind.__new__(kind)
        error.__cause__ = None if cause is None else self._exception(cause)
        error._there = self._proxy(number)  # type: ignore[attr-defined]
        if str(error) != message:
            error.args = (str(message),)
        return error


def _attribute_there(error: BaseException, name: str) -> Any:
    """An attribute that an exception of the other side's own has over there."""
    if name.startswith("__") or name == "_there":
        raise AttributeError(name)
    return getattr(error._there, name)  # type: ignore[attr-defined]


class Proxy:
    """An object of the code under test."""

    __slots__ = ("_proxy_link", "_proxy_number")

    def __init__(self, link: CandidateLink, number: int) -> None:
        object.__setattr__(self, "_proxy_link", link)
        object.__setattr__(self, "_proxy_number", number)

    def __call__(self, /, *arguments: Any, **keywords: Any) -> Any:
        return _operate(self, "call", *arguments, **keywords)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__") and name not in ("__name__", "__doc__", "__qualname__"):
            raise AttributeError(name)  # what copying, pickling and the test runner ask of every object
        if _link(self).may(f".{name}") or name in _HARMLESS:
            return _operate(self, "getattr", name)
        return getattr(_plainly(self, name), name)

    def __setattr__(self, name: str, value: Any) -> None:
        _operate(self, "setattr", name, value)

    def __delattr__(self, name: str) -> None:
        _operate(self, "delattr", name)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Proxy):
            return self is other or _operate(self, "eq", other) is True
        for value in _link(self).plain(self):
            return bool(value == other)
        return NotImplemented  # the other is one of the tests' own, such as an approx

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __contains__(self, item: Any) -> bool:
        if isinstance(item, Proxy) or _link(self).may("contains"):
            return bool(_operate(self, "contains", item))
        for value in _link(self).plain(self):
            return item in value
        return any(each is item or each == item for each in iter(self))  # as for an object without a method for it

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _traceback: Any) -> bool:
        swallows = bool(_operate(self, "exit", kind, "" if error is None else str(error)))
        if error is None or not swallows:
            return False
        of_tests = isinstance(error, AssertionError) or not isinstance(error, Exception)
        return not of_tests and _link(self).may(f"swallow {type(error).__name__}")

    def __mro_entries__(self, _bases: Any) -> NoReturn:
        raise _link(self).fail("a class of the code under test cannot be derived from here")

    def __instancecheck__(self, item: Any) -> bool:
        return isinstance(item, Proxy) and _operate(item, "isinstance", self) is True

    def __subclasscheck__(self, kind: Any) -> bool:
        return isinstance(kind, Proxy) and _operate(kind, "issubclass", self) is True


def _number(proxy: Proxy) -> int:
    return int(object.__getattribute__(proxy, "_proxy_number"))


def _link(proxy: Proxy) -> CandidateLink:
    link: CandidateLink = object.__getattribute__(proxy, "_proxy_link")
    return link


def _operate(proxy: Proxy, operation: str, /, *arguments: Any, **keywords: Any) -> Any:
    return _link(proxy).operate(operation, proxy, *arguments, **keywords)


def _plainly(proxy: Proxy, name: str) -> Any:
    """What an object is as a builtin value, to be asked what the object itself may not be.

    Raises:
        AttributeError: it is none.
    """
    for value in _link(proxy).plain(proxy):
        return value
    raise AttributeError(name)


def _method(operation: str) -> Callable[..., Any]:
    return lambda self, *arguments: _operate(self, operation, *arguments)


def _binary(operation: str, asked: str, reflected: bool = False) -> Callable[..., Any]:
    """An operator; what it asks goes by one name, whichever side the object is on."""

    def operate(self: Proxy, other: Any, *modulus: Any) -> Any:
        link = _link(self)
        if isinstance(other, Proxy) or link.may(asked):
            return link.operate(operation, *((other, self) if reflected else (self, other)), *modulus)
        for value in link.plain(self):
            return getattr(operator, operation)(*((other, value) if reflected else (value, other)))
        return NotImplemented

    return operate


def _ordered(operation: str) -> Callable[..., Any]:
    def compare(self: Proxy, other: Any) -> Any:
        if isinstance(other, Proxy):
            return _operate(self, operation, other)
        for value in _link(self).plain(self):
            return getattr(operator, operation)(value, other)
        return NotImplemented

    return compare


_BINARY = words("add sub mul truediv floordiv mod pow matmul and or xor lshift rshift")
_OTHERS = words("""
    neg pos abs invert index getitem setitem delitem len iter next reversed bool int float complex round str
    repr hash format enter dir
""")

Proxy.__doc__ = property(lambda self: self.__getattr__("__doc__"))  # type: ignore[assignment]
for _name in _BINARY:
    _operation = _name + "_" if _name in ("and", "or") else _name
    setattr(Proxy, f"__{_name}__", _binary(_operation, _name))
    setattr(Proxy, f"__i{_name}__", _binary(f"i{_name}", _name))
    setattr(Proxy, f"__r{_name}__", _binary(_operation, _name, reflected=True))
for _name in _OTHERS:
    setattr(Proxy, f"__{_name}__", _method(_name))
for _name in ("lt", "le", "gt", "ge"):
    setattr(Proxy, f"__{_name}__", _ordered(_name))


class _Names(Mapping[str, Any]):
    def __init__(self, link: CandidateLink) -> None:
        self._link = link

    def __getitem__(self, name: str) -> Any:
        try:
            return self._link.ask("get", name=name)
        except AttributeError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._link.ask("names"))

    def __len__(self) -> int:
        return len(self._link.ask("names"))


class Main(types.ModuleType):
    """The module that the tests import."""

    def __init__(self, name: str, link: CandidateLink) -> None:
        super().__init__(name)
        super().__setattr__("_link", link)

    @property
    def __dict__(self) -> Mapping[str, Any]:  # type: ignore[override]
        """Its public names, as they are over there; for `vars` and for patching."""
        return _Names(self._link)

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return self._link.star()
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self._link.ask("get", name=name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        else:
            self._link.operate("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        self._link.operate("delattr", self, name)
