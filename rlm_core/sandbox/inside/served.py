"""The code under test, as test code in another process uses it: attributes, calls and operators on request.

    do          needs                      kind        payload
    get         name                       value       the tree of the module's attribute
    names                                  value       the tree of the module's public names
    operate     operation, arguments,      value       the tree of the result
                keywords (trees)
    any of them                            raised      [ancestry, message, arguments (a tree or null), number, cause
                                                       (the same of another exception, or null), those that are in it]
                                           callback    [number, operation, arguments, keywords]: a question back

A question back, which the tests answer by `{"do": "answer", "value": tree}` or `{"do": "fail", "kind", "message"}`, may
be followed by more requests before it is answered. The process is the candidate's, which can change all of this; it
answers questions, and what it is expected to answer is not here.
"""

import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import wire
from .remote import EXCEPTIONS, Table, ancestry, decode_copied, encode_copied
from .wire import Tree
from .words import words

_Answer = tuple[str, Any]
_MOST_RELATED = 20
"""Exceptions in a group, or each the cause of the one before, that are told of."""

_PLAIN: dict[type, Callable[[Any], Any]] = {
    **{kind: kind.__pos__ for kind in (int, float, complex)},
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    list: lambda value: list(list.__iter__(value)),
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    dict: dict.copy,
}
"""From a value of a class derived from a builtin one to what it is as a value of that."""


def _plain(value: Any) -> tuple[Any, ...]:
    """What an object is as a builtin value: as one item, or none if its class is derived from no builtin one.

    So that a named tuple equals a tuple, and a member of an IntEnum a number, in the eyes of the tests.
    """
    kind = next((base for base in type(value).__mro__ if base in _PLAIN), None)
    return () if kind is None else (_PLAIN[kind](value),)


def _enter(manager: Any) -> Any:
    return type(manager).__enter__(manager)


def _exit(manager: Any, error: type[BaseException] | None, message: str) -> Any:
    raised = None if error is None else _made(error, message)
    return type(manager).__exit__(manager, error, raised, None)


OPERATIONS: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(operator, name)
        for name in words("""
            add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift
            iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift
            eq ne lt le gt ge neg pos abs invert index getitem setitem delitem contains
        """)
    },
    **{
        function.__name__: function
        for function in (len, iter, next, reversed, bool, int, float, complex, round, str, repr, hash, format, dir)
    },
    **{function.__name__: function for function in (getattr, setattr, delattr, isinstance, issubclass)},
    "call": lambda function, /, *arguments, **keywords: function(*arguments, **keywords),
    "plain": _plain,
    "enter": _enter,
    "exit": _exit,
}


class TestObject:
    """A function or an iterator of the tests, in the hands of the code under test."""

    def __init__(self, served: "ServedModule", number: int, name: str | None, doc: str | None) -> None:
        self._served = served
        self.number = number
        if name is not None:
            self.__name__ = self.__qualname__ = name
        self.__doc__ = doc

    def __call__(self, /, *arguments: Any, **keywords: Any) -> Any:
        return self._served.ask_back(self.number, "call", arguments, keywords)

    def __iter__(self) -> Any:
        return self._served.ask_back(self.number, "iter", (), {})

    def __next__(self) -> Any:
        return self._served.ask_back(self.number, "next", (), {})


class ServedModule:
    """Answers the tests' requests about a module, and asks them back when it calls what it was given."""

    def __init__(
        self,
        module: ModuleType,
        limits: dict[str, Any],
        send: Callable[[str, str, Any], None],
        receive: Callable[[], dict[str, Any]],
    ) -> None:
        """Serve a module.

        Args:
            module: the code under test, loaded.
            limits: see `Limits`.
            send: sends an answer: the request's nonce, kind, payload.
            receive: waits for the next request.
        """
        self._module = module
        self._send = send
        self._receive = receive
        self._objects = Table()
        self._theirs: dict[int, TestObject] = {}
        self._in_hand: list[str] = []
        self._text_chars = limits["text_chars"]
        self._encoder = wire.Encoder(limits["nodes"], limits["depth"], limits["frame_mb"], self._encode)

    def answer(self, request: dict[str, Any]) -> _Answer:
        """Do what is asked and return kind and payload of the answer."""
        self._in_hand.append(request["nonce"])
        try:
            return "value", self._encoder.encode(self._do(request))
        except BaseException as error:
            return "raised", self._describe(error)
        finally:
            self._in_hand.pop()

    def _do(self, request: dict[str, Any]) -> Any:
        if request["do"] == "get":
            return getattr(self._module, request["name"])
        if request["do"] == "names":
            public = [name for name in vars(self._module) if not name.startswith("_")]
            return list(getattr(self._module, "__all__", public))
        arguments = wire.decode(request["arguments"], self._decode)
        keywords = wire.decode(request["keywords"], self._decode)
        return OPERATIONS[request["operation"]](*arguments, **keywords)

    def ask_back(self, number: int, operation: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Have the tests do something with an object of theirs, serving requests of theirs meanwhile."""
        encoded = (self._encoder.encode(list(arguments)), self._encoder.encode(keywords))
        self._send(self._in_hand[-1], "callback", [number, operation, *encoded])
        while True:
            request = self._receive()
            if request["do"] == "answer":
                return wire.decode(request["value"], self._decode)
            if request["do"] == "fail":
                raise _made(wire.decode(request["kind"], self._decode), request["message"])
            self._send(request["nonce"], *self.answer(request))

    def _encode(self, value: Any, encode: Callable[[Any], Tree]) -> Tree:
        copied = encode_copied(value, encode)
        if copied is not None:
            return copied
        if isinstance(value, TestObject):
            return ["g", value.number]
        if value is self._module:
            return ["m"]
        if isinstance(value, type) and issubclass(value, BaseException):
            return ["x", ancestry(value, self._objects.number)]
        return ["h", self._objects.number(value)]

    def _decode(self, tag: str, parts: list[Tree]) -> Any:
        if tag == "p":
            return decode_copied(parts[0], wire.decode(parts[1], self._decode))
        if tag == "h":
            return self._objects[parts[0]]
        if tag == "g":
            return self._theirs.setdefault(parts[0], TestObject(self, *parts))
        if tag == "m":
            return self._module
        assert tag == "x"
        name, number, bases = parts[0]
        if number is not None:
            return self._objects[number]
        return EXCEPTIONS.get(name) or self._decode("x", bases)  # one of the tests' own is no more here than its base

    def _describe(self, error: BaseException, related: int = _MOST_RELATED) -> list[Tree]:
        try:
            message = str(error)[: self._text_chars]
        except BaseException:
            message = ""
        try:
            arguments = self._encoder.encode(list(error.args))
        except BaseException:
            arguments = None
        cause = error.__cause__
        within = error.exceptions[:related] if isinstance(error, BaseExceptionGroup) else ()
        return [
            ancestry(type(error), self._objects.number),
            message,
            arguments,
            self._objects.number(error),
            None if cause is None or not related else self._describe(cause, related - 1),
            [self._describe(each, related // 4) for each in within],
        ]


def _made(kind: type[BaseException], message: str) -> BaseException:
    """An exception of this class, which may be the code's own and want other arguments."""
    try:
        return kind(message)
    except Exception:
        error = kind.__new__(kind)
        error.args = (message,)
        return error
