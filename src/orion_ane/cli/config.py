"""Options from a YAML file; those of the command line win."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import yaml

from orion_ane.errors import ConfigError

MAX_BYTES = 1 << 20
NULL = "tag:yaml.org,2002:null"
OF_THE_LINE = {"config", "help", "debug"}  # which say how the command line itself is read


def add_config(command: click.Command) -> None:
    """Add `--config FILE` to a command, or to all that are below it.

    Its values stand where the command line gives none.
    """
    if isinstance(command, click.Group):
        for below in command.commands.values():
            add_config(below)
        return
    option = click.Option(
        ["--config"],
        type=click.Path(path_type=Path),
        is_eager=True,
        expose_value=False,
        callback=_take,
        help="Options by name, in YAML; those given here win.",
    )
    command.params.append(option)


def _take(context: click.Context, _: click.Parameter, file: Path | None) -> None:
    if file is not None:
        context.default_map = {**(context.default_map or {}), **_options(context, file)}


def _options(context: click.Context, file: Path) -> dict[str, Any]:
    """What the file says, by parameter; as text, which options read as if it had been typed."""
    known = {
        word.lstrip("-"): parameter
        for parameter in context.command.params
        for word in parameter.opts  # `no-stream: true` is `stream: false`
        if word.startswith("--") and word.lstrip("-") not in OF_THE_LINE
    }
    found: dict[str, Any] = {}
    for key, value in _entries(file):
        name = key.value.replace("_", "-")
        where = f"{file}, line {key.start_mark.line + 1}"
        if name not in known:
            raise ConfigError(where, "no such option", got=key.value, want=", ".join(known))
        parameter = known[name]
        if parameter.name in found:
            raise ConfigError(where, f"{name} stands twice")
        texts = _texts(where, name, value)
        if parameter.multiple:
            found[str(parameter.name)] = texts
        elif isinstance(value, yaml.ScalarNode):
            found[str(parameter.name)] = texts[0]
        else:
            raise ConfigError(where, f"{name}: a list", want="one value")
    return found


def _entries(file: Path) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
    """Keys and values as nodes: nothing is made of them, so that no tag can ask for anything."""
    try:
        if (size := file.stat().st_size) > MAX_BYTES:
            raise ConfigError(str(file), "too large", got=size, want=f"at most {MAX_BYTES}")
        root = yaml.compose(file.read_text("utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise ConfigError(str(file), f"cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        why = str(error).replace("\n", " ")
        raise ConfigError(str(file), "not YAML", got=why) from error
    if root is None:
        return []
    is_table = isinstance(root, yaml.MappingNode)
    if not is_table or not all(isinstance(key, yaml.ScalarNode) for key, _ in root.value):
        raise ConfigError(str(file), "not a table of options", want="lines such as `steps: 100`")
    entries: list[tuple[yaml.ScalarNode, yaml.Node]] = root.value
    return entries


def _texts(where: str, name: str, value: yaml.Node) -> list[str]:
    """A value, or those of a list."""
    nodes = value.value if isinstance(value, yaml.SequenceNode) else [value]
    if not all(isinstance(node, yaml.ScalarNode) and node.tag != NULL for node in nodes):
        raise ConfigError(where, f"{name}: no value", want="a text, a number, or a list of them")
    return [node.value for node in nodes]
