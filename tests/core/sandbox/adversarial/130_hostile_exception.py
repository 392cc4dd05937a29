# An exception whose class, name and text all run code.
class M(type):
    @property
    def __name__(c): return 'ValueError' * 1000000
    @property
    def __mro__(c): return (ValueError,) * 1000
    def mro(c): return [c, *Exception.__mro__]
class E(Exception, metaclass=M):
    def __str__(s): return 'x' * 50_000_000
def solve(n): raise E
