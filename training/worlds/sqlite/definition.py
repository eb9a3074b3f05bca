"""A SQLite world as files: schema, seed rows and tools, each a named, typed, parameterised piece of SQL. Reads files."""

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ledger.errors import BundleError

EXAMPLES = Path(__file__).parent / "examples"
_NAME = r"^[a-z][a-z0-9_]{0,62}$"


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Argument(_Table):
    """One argument of a tool; its value is bound as the SQL parameter of its name, NULL when it is left out.

    Attributes:
        type: JSON type; an array holds texts and is bound as JSON text, for `json_each`.
        description: shown to the policy.
        required: whether it may be left out.
        enum: the texts allowed.
        minimum, maximum: bounds of a number.
        max_length: characters of a text, or items of an array.
        pattern: regular expression that a whole text must match.
    """

    type: Literal["string", "integer", "number", "boolean", "array"]
    description: str = ""
    required: bool = True
    enum: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    max_length: int = Field(default=500, ge=1, le=20_000)
    pattern: str | None = None

    def schema_part(self) -> dict[str, Any]:
        """The argument as JSON Schema."""
        part: dict[str, Any] = {"type": self.type, "description": self.description or None, "enum": list(self.enum) or None}
        part |= {"minimum": self.minimum, "maximum": self.maximum, "items": {"type": "string"} if self.type == "array" else None}
        return {key: value for key, value in part.items() if value is not None}


class Check(_Table):
    """A query that must give a row before the tool acts; otherwise the call is refused.

    Attributes:
        sql: the query.
        message: what the policy reads; `{argument}` stands for an argument's value.
        error: the refusal's error class.
    """

    sql: str
    message: str
    error: Literal["not_found", "invalid_arguments", "tool_error"] = "tool_error"


class Tool(_Table):
    """A tool: checks, then changes, then the answer, in one transaction.

    Attributes:
        name: tool name.
        description: shown to the policy.
        arguments: by name.
        checks: what must hold.
        changes: statements that change the database.
        answer: query whose rows are the answer.
        one: answer with the only row instead of a list of rows.
        statement: name of an argument that is itself SQL, for worlds in which the policy writes its own; then there is no other SQL.
        writes: whether the policy's own SQL may change rows.
        function: name of a function of `functions.py` that is the tool instead; it runs in the sandbox.
    """

    name: str = Field(pattern=_NAME)
    description: str
    arguments: dict[str, Argument] = Field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    changes: tuple[str, ...] = ()
    answer: str | None = None
    one: bool = False
    statement: str | None = None
    writes: bool = False
    function: str | None = None

    @model_validator(mode="after")
    def _one_form(self) -> "Tool":
        sql = bool(self.checks or self.changes or self.answer)
        if sql + (self.statement is not None) + (self.function is not None) > 1:
            raise ValueError("a tool is either SQL (checks, changes, answer), or a statement of the policy's own, or a function")
        argument = self.arguments.get(self.statement or "")
        if self.statement is not None and (argument is None or argument.type != "string"):
            raise ValueError(f"statement {self.statement!r} must be one of the string arguments")
        return self

    def schema_part(self) -> dict[str, Any]:
        """The tool as an OpenAI tool schema."""
        properties = {name: argument.schema_part() for name, argument in self.arguments.items()}
        required = [name for name, argument in self.arguments.items() if argument.required]
        parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return {"type": "function", "function": {"name": self.name, "description": self.description, "parameters": parameters}}


class Limits(_Table):
    """What one call may take.

    Attributes:
        steps: instructions of SQLite's virtual machine, which are the same in every replay.
        seconds: wall clock; reaching it is the world's failure, not an answer.
        rows: rows of an answer; further ones are cut off and the answer says so.
        value_bytes: bytes of one text or blob.
        database_bytes: bytes of the whole database.
    """

    steps: int = Field(default=2_000_000, ge=1000)
    seconds: float = Field(default=5.0, gt=0)
    rows: int = Field(default=50, ge=1)
    value_bytes: int = Field(default=100_000, ge=1000)
    database_bytes: int = Field(default=16 * 1024 * 1024, ge=4096)


class TaskEntry(_Table):
    """One task as its file says it; `turns` hold one user message each.

    Attributes:
        setup: statements over the seed rows that make the task's initial state.
        calls: the reference, one list of calls for each user turn.
        equivalent: other ways that must be accepted.
        wrong: ways that must be rejected, each with the conditions that it breaks.
        conditions, allowed_changes: see the verifier `sqlite_conditions`.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")
    family: str
    split: Literal["train", "validation", "test"] = "train"
    turns: tuple[str, ...] = Field(min_length=1)
    hint: str | None = None
    setup: tuple[str, ...] = ()
    calls: list[list[dict[str, Any]]]
    equivalent: list[dict[str, Any]] = Field(default_factory=list)
    wrong: list[dict[str, Any]] = Field(default_factory=list)
    conditions: list[dict[str, Any]] = Field(default_factory=list)
    allowed_changes: list[str] | None = None


class Definition(_Table):
    """A world's `world.toml`.

    Attributes:
        name: such as `shop`.
        system: system message of every task.
        licence: of the data.
        volatile: `table.column` or `table`: what end states are not compared on. A table whose primary key is volatile is compared as
            a multiset of its rows.
        limits: of one call.
        tools: in the order that the policy sees.
        schema_sql, seed_sql, functions_py: the texts beside `world.toml`.
    """

    name: str = Field(pattern=_NAME)
    system: str
    licence: str
    volatile: tuple[str, ...] = ()
    limits: Limits = Limits()
    tools: tuple[Tool, ...] = Field(min_length=1)
    schema_sql: str
    seed_sql: str
    functions_py: str = ""


def read_definition(folder: Path) -> Definition:
    """The world in `folder`: `world.toml`, `schema.sql` and `seed.sql`, and `functions.py` where a tool is a function.

    Raises:
        BundleError: a file is missing or does not fit; the message names it.
    """
    path = folder / "world.toml"
    try:
        table = _toml(path) | {name: (folder / f"{name[:-4]}.sql").read_text(encoding="utf-8") for name in ("schema_sql", "seed_sql")}
        functions = folder / "functions.py"
        table |= {"functions_py": functions.read_text(encoding="utf-8")} if functions.exists() else {}
        definition = Definition.model_validate(table)
    except OSError as error:
        raise BundleError(f"cannot read {error.filename}: {error.strerror}; a world has world.toml, schema.sql and seed.sql") from error
    except ValidationError as error:
        raise BundleError(f"{path}: {_first(error)}") from error
    names = [tool.name for tool in definition.tools]
    if len(set(names)) < len(names):
        raise BundleError(f"{path}: a tool is defined twice among {', '.join(names)}")
    return definition


def read_tasks(folder: Path) -> list[TaskEntry]:
    """The tasks in the folder's `tasks.toml`, in order.

    Raises:
        BundleError: the file is missing or does not fit.
    """
    path = folder / "tasks.toml"
    try:
        return [TaskEntry.model_validate(entry) for entry in _toml(path).get("tasks", [])]
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror}") from error
    except ValidationError as error:
        raise BundleError(f"{path}: {_first(error)}") from error


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise BundleError(f"{path} is not TOML: {error}") from error


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}; seen {str(first.get('input'))[:120]!r}"
