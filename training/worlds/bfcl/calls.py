"""Calls as source text: read from the ground truth, and written for the official checker so that it can evaluate only literals."""

import ast
import keyword
from collections.abc import Mapping
from typing import Any

from ledger.errors import BundleError
from training.worlds.bfcl.docs import FunctionDoc

_PARENTHESIS = "\\x28"
REFUSED_CALL = "refused_call()"
"""Stands for a call that the world did not carry out: evaluating it changes no state and gives an error text."""


def parse_call(text: str, functions: Mapping[str, FunctionDoc]) -> dict[str, Any]:
    """The call as `{"name", "arguments"}`, positional arguments named after the function's documentation.

    Raises:
        BundleError: not one call of a documented function with literal arguments.
    """
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise BundleError(f"call {text!r} is not an expression") from error
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in functions:
        raise BundleError(f"call {text!r} is not one of the documented functions {', '.join(functions)}")
    parameters = list(functions[node.func.id]["parameters"]["properties"])
    if len(node.args) > len(parameters):
        raise BundleError(f"call {text!r} has {len(node.args)} positional arguments; allowed: {', '.join(parameters) or 'none'}")
    arguments = {name: _literal(argument, text) for name, argument in zip(parameters, node.args, strict=False)}
    for item in node.keywords:
        if item.arg is None or item.arg in arguments:
            raise BundleError(f"call {text!r} gives {item.arg or '**'} twice or unpacked; allowed: each parameter once, by name")
        arguments[item.arg] = _literal(item.value, text)
    return {"name": node.func.id, "arguments": arguments}


def call_text(name: str, arguments: Mapping[str, Any], functions: Mapping[str, FunctionDoc]) -> str:
    """The call as source text whose evaluation can reach nothing but the documented function and literals.

    The official checker puts its instance name before every `word(`, also inside string literals, which makes equal texts
    unequal; so an opening parenthesis inside a literal is written as an escape.

    Returns:
        The text, or `REFUSED_CALL` when the name is not documented or an argument name is not an identifier.

    Raises:
        BundleError: an argument value is not made of JSON values.
    """
    if name not in functions or any(not key.isidentifier() or keyword.iskeyword(key) for key in arguments):
        return REFUSED_CALL
    literals = {key: repr(value).replace("(", _PARENTHESIS) for key, value in arguments.items()}
    text = f"{name}({', '.join(f'{key}={literal}' for key, literal in literals.items())})"
    node = ast.parse(text, mode="eval").body
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.args or len(node.keywords) != len(arguments):
        raise BundleError(f"call {text!r} does not read back as one call of {name}")
    for item in node.keywords:
        if item.arg is None or item.arg not in arguments or _literal(item.value, text) != arguments[item.arg]:
            raise BundleError(f"argument {item.arg} of {text!r} does not read back as the literal it was written from")
    return text


def _literal(node: ast.expr, text: str) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise BundleError(f"call {text[:200]!r} has an argument that is not a literal") from error
