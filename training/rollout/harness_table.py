"""The `[harness]` table of an experiment's file: every choice that makes a harness. Pure."""

from typing import Literal

from pydantic import Field, model_validator

from training.train_config import MethodUse, Table

Style = Literal["chat", "rewritten", "orchestrator"]
ToolFormat = Literal["native", "compact", "json"]


class SystemPrompt(Table):
    """The system prompt.

    Attributes:
        mode: `task` takes the task's own, `replace` takes `text` instead, `append` puts `text` after the task's own, `none` has none.
        text: for `replace` and `append`.
    """

    mode: Literal["task", "replace", "append", "none"] = "task"
    text: str = ""

    @model_validator(mode="after")
    def _said(self) -> "SystemPrompt":
        if (self.mode in ("replace", "append")) != bool(self.text):
            raise ValueError(
                f"mode {self.mode!r} with {len(self.text)} characters of text; allowed: a text for 'replace' and 'append' only"
            )
        return self


class StopRules(Table):
    """What says that the policy has answered the user turn.

    Attributes:
        texts: the last line of an answer, exactly; calls before it are carried out first.
        no_tool_call: an answer without a tool call. In a text format lines that name no tool are then plain text, else each is a call.
    """

    texts: tuple[str, ...] = ()
    no_tool_call: bool = True

    @model_validator(mode="after")
    def _ends(self) -> "StopRules":
        if not self.texts and not self.no_tool_call:
            raise ValueError("no rule stops the policy; allowed: at least one text, or no_tool_call = true")
        if bad := [text for text in self.texts if not text or text != text.strip() or "\n" in text]:
            raise ValueError(f"stop text {bad[0]!r}; allowed: one line without blanks around it")
        return self


class Retries(Table):
    """Failures of the engine after which a call is made again; each is counted, and the gateway records each attempt.

    Attributes:
        times: how often at most, for one call.
        statuses: HTTP statuses of the engine; 502 is also a connection that broke.
    """

    times: int = Field(default=0, ge=0, le=10)
    statuses: tuple[int, ...] = (429, 500, 502, 503, 504)


class SubAgentTable(Table):
    """The sub-agent that the main agent's tool `delegate` starts; it acts in the same world and its answer is the tool's result.

    Attributes:
        system: its system prompt.
        tools: names of the world's tools that it may call; all when empty.
        main_tools: names of the world's tools that the main agent keeps beside `delegate`; all when empty.
        calls: model calls that one sub-agent may take.
        starts: how many sub-agents a rollout may start.
    """

    system: str = "You work on one task for another agent. Answer with what it asked for, and nothing else."
    tools: tuple[str, ...] = ()
    main_tools: tuple[str, ...] = ()
    calls: int = Field(default=8, ge=1)
    starts: int = Field(default=8, ge=1)


class HarnessTable(Table):
    """A harness as data; all of it is in the harness's digest.

    Attributes:
        name: readable name.
        style: `chat` only ever appends to the conversation, `rewritten` has hooks that rewrite it, `orchestrator` has a sub-agent.
        calls_per_turn: model calls that a user turn may take.
        calls: model calls that a rollout may take, of all its participants together.
        max_tokens: sampled tokens that a call may take.
        wall_s: seconds of sampling and tool time together.
        context_tokens: tokens that a conversation may have before hooks at `context_full` are asked to shorten it; without effect when
            the upstream counts no tokens. None: the model's own limit.
        system: the system prompt.
        tool_format: `native` sends OpenAI tools, `compact` and `json` read calls from the text and send no tools.
        tools_in_prompt: whether the tools are described in the system prompt; for the text formats.
        results: `raw` shows a tool's result as it is, `values` the values of its JSON in order.
        stop: None for the format's own: `native` stops at an answer without a call, the others at a line DONE.
        retries: of engine failures.
        hooks: methods of `training.hooks`, in their order.
        sub_agent: for the orchestrator.
    """

    name: str = Field(default="tool_loop", pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")
    style: Style = "chat"
    calls_per_turn: int = Field(default=12, ge=1)
    calls: int = Field(default=40, ge=1)
    max_tokens: int = Field(default=512, ge=1)
    wall_s: float = Field(default=900.0, gt=0)
    context_tokens: int | None = Field(default=None, ge=1)
    system: SystemPrompt = SystemPrompt()
    tool_format: ToolFormat = "native"
    tools_in_prompt: bool = False
    results: Literal["raw", "values"] = "raw"
    stop: StopRules | None = None
    retries: Retries = Retries()
    hooks: tuple[MethodUse, ...] = ()
    sub_agent: SubAgentTable | None = None

    @model_validator(mode="after")
    def _fits(self) -> "HarnessTable":
        if (self.style == "orchestrator") != (self.sub_agent is not None):
            raise ValueError(
                f"style {self.style!r} {'without' if self.sub_agent is None else 'with'} sub_agent; allowed: it for 'orchestrator' alone"
            )
        if self.tool_format == "native" and self.tools_in_prompt:
            raise ValueError("tools_in_prompt with tool_format 'native'; allowed: with 'compact' or 'json', since native tools are sent")
        if self.tool_format == "native" and not self.stops.no_tool_call:
            raise ValueError("no_tool_call = false with tool_format 'native'; allowed: with 'compact' or 'json', where each line is a call")
        return self

    @property
    def stops(self) -> StopRules:
        """The stop rules in force."""
        if self.stop is not None:
            return self.stop
        return StopRules() if self.tool_format == "native" else StopRules(texts=("DONE",), no_tool_call=False)

    @property
    def limits(self) -> dict[str, int | float]:
        """The declared limits by name."""
        named: dict[str, int | float | None] = {
            "calls_per_turn": self.calls_per_turn, "calls": self.calls, "max_tokens": self.max_tokens, "wall_s": self.wall_s,
            "context_tokens": self.context_tokens, "sub_agent_calls": None if self.sub_agent is None else self.sub_agent.calls,
            "sub_agent_starts": None if self.sub_agent is None else self.sub_agent.starts,
        }  # fmt: skip
        return {name: value for name, value in named.items() if value is not None}
