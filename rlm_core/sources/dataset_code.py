"""Code that a data set has in its fields: read, and refused with the field's name."""

import ast


def syntax_tree(field: str, source: str) -> ast.Module:
    """A piece of the data set's code as a syntax tree.

    Raises:
        ValueError: it is no Python, or nested too deep to be read; the message begins with the field.
    """
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise ValueError(f"{field}: is no Python: {error.msg}, line {error.lineno}") from error
    except (MemoryError, RecursionError) as error:
        raise ValueError(f"{field}: is nested too deep to be read") from error


def plain(field: str, source: str) -> str:
    """The code written so that it can be indented: no string in it goes on over a line's end."""
    return ast.unparse(syntax_tree(field, source))


def defined(tree: ast.Module) -> set[str]:
    """Names that a module defines or assigns at its top level."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        else:
            stored = (each for each in ast.walk(node) if isinstance(each, ast.Name))
            found |= {each.id for each in stored if isinstance(each.ctx, ast.Store)}
    return found
