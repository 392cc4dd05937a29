"""YAML that people write, or one reason why it is none."""

from typing import Any

import yaml

from rlm_core.errors import one_line


def parse_yaml(text: str, loader: type[yaml.SafeLoader] = yaml.SafeLoader) -> Any:
    """What the text says.

    Raises:
        ValueError: it is not YAML, in one line.
    """
    try:
        return yaml.load(text, Loader=loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(one_line(error)) from error
    except (LookupError, AttributeError) as error:  # what PyYAML raises at `!!int ''` and its like
        raise ValueError("a tag such as !!int stands before what it does not fit") from error
