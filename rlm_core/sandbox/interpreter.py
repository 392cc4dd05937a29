"""What of this machine the sandbox may see: an interpreter, its standard library, the system's shared libraries.

Installed packages are hidden on purpose. A bank of problems with its reference solutions may be among them (ours is),
and so may be somebody's configuration. The price: an answer can use the standard library only.
"""

import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
"""The directory of rlm_core."""
INSIDE = PACKAGE / "sandbox" / "inside"

_ZONES = "/usr/share/zoneinfo"
SYSTEM = (
    # The rest that macOS needs is in the profile: inside/seatbelt.py.
    ("/usr/lib", _ZONES)
    if sys.platform == "darwin"
    else ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/etc/ld.so.cache", _ZONES)
)
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


@dataclass(frozen=True)
class Interpreter:
    """A Python and the paths that it needs."""

    executable: Path
    """The base interpreter, links resolved: a virtual environment adds only packages, which are hidden."""
    readable: tuple[Path, ...]
    """Files and directories, links resolved, none inside another."""
    hidden: tuple[Path, ...]
    """Directories below `readable` that must not be seen."""
    packages: tuple[Path, ...] = ()
    """Installed packages that are needed all the same, wherever they lie: directories, or files of one module."""

    @property
    def exposed(self) -> tuple[Path, ...]:
        """Paths whose files may be read: `readable`, taken apart around `hidden`."""
        return tuple(part for path in self.readable for part in _around(path, self.hidden))

    @property
    def readable_by_all(self) -> bool:
        """Whether a user without privileges who has come as far as to what is needed can read it."""
        return all(path.stat().st_mode & 0o004 for path in self._needed)

    @property
    def reachable_by_all(self) -> bool:
        """Whether a user without privileges can come as far as that, from the root of the file system."""
        return all(parent.stat().st_mode & 0o001 for path in self._needed for parent in path.parents)

    @property
    def _needed(self) -> tuple[Path, ...]:
        return (*self.readable, *self.packages)


def find_interpreter(packages: Iterable[str] = ()) -> Interpreter:
    """The interpreter that this process runs on, as a sandbox needs it.

    Args:
        packages: names of installed packages to be seen in it, and no others.

    Raises:
        ImportError: one of them is not installed.
    """
    executable = Path(getattr(sys, "_base_executable", None) or sys.executable).resolve()
    paths = sysconfig.get_paths(vars={"installed_base": sys.base_prefix, "platbase": sys.base_exec_prefix})
    prefix = executable.parents[1]
    wanted = [*SYSTEM, paths["stdlib"], paths["platstdlib"], f"{prefix}/lib", f"{prefix}/lib64"]
    readable = _outermost(path for path in (Path(name).resolve() for name in wanted) if path.exists())
    hidden = _outermost(path for path in _package_directories() if any(path.is_relative_to(root) for root in readable))
    return Interpreter(executable, readable, hidden, tuple(map(_package, packages)))


def _package(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise ImportError(f"the package {name} is not installed")
    file = Path(spec.origin).resolve()
    return file.parent if spec.submodule_search_locations else file


def _package_directories() -> Iterator[Path]:
    """Every directory that may hold installed packages, and our own."""
    prefixes = [sys.prefix, sys.base_prefix, sys.base_exec_prefix, "/usr", "/usr/local"]
    names = {*site.getsitepackages(), *site.getsitepackages(prefixes)}
    names |= {sysconfig.get_path(kind) for kind in ("purelib", "platlib")} | {site.getusersitepackages()}
    names |= {"/usr/lib/python3/dist-packages", "/usr/lib/python3/site-packages"}
    return (path for path in {PACKAGE, *(Path(name).resolve() for name in names)} if path.is_dir())


def _outermost(paths: Iterable[Path]) -> tuple[Path, ...]:
    """The paths that lie inside none of the others, sorted."""
    known = sorted(set(paths))
    return tuple(path for path in known if not any(parent in known for parent in path.parents))


def _around(path: Path, hidden: tuple[Path, ...]) -> Iterator[Path]:
    """`path` itself when nothing hidden lies in it, or else its entries, as deep as necessary, without the hidden."""
    if path in hidden:
        return
    if not any(directory.is_relative_to(path) for directory in hidden):
        yield path
        return
    for entry in path.iterdir():
        if not entry.is_symlink():  # what a link leads to is allowed where it lies, or not
            yield from _around(entry, hidden)
