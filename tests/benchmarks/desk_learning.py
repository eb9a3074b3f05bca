"""Whether a tiny policy learns the desk: copying, a noisy teacher, then GRPO, in plain torch straight at the world, without ledger.

It finds settings on the validation slice; the project's trainer proves them. One torch thread; seconds are of this process's CPU time:

    python -m tests.benchmarks.desk_learning --noise 0.3 --seed 0
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from ledger.bundle import BundleDraft
from training.models.causal_lm import CausalLM
from training.models.copying import copy_batches
from training.models.presets import llama_config, preset_of
from training.models.tokenizer import END, PAD, SPECIAL, trained_tokenizer
from training.rollout.tool_text import call_line, parsed_line, result_text
from training.verifiers import JudgeTask
from training.verifiers.desk_conditions import desk_conditions
from training.worlds import AssistantTurn, ToolCall
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.meaning import cooling, facts_of, holds, plan
from training.worlds.ticket_desk.rules import rule_of
from training.worlds.ticket_desk.synthesis import slice_tasks
from training.worlds.ticket_desk.walks import WALKS

DESK = TicketDesk()
Said = list[tuple[str, str]]
LIMITS = {"calls": 40, "tokens": 420, "call_tokens": 10}


def opening(draft: BundleDraft) -> str:
    return f"<|system|> {draft.request['system']}<|user|> {draft.request['turns'][-1][0]['content']}"


def played(draft: BundleDraft, turns: Sequence[AssistantTurn]) -> tuple[Any, Said]:
    """The last state, and what was said as (role, compact text)."""
    state, tools, said = DESK.reset(draft, seed=0), DESK.tools(draft, turn=0), []
    for turn in turns:
        if not turn.tool_calls:
            said.append(("assistant", str(turn.content)))
            continue
        name, raw = turn.tool_calls[0]
        state, observation = DESK.call(state, ToolCall(name, json.loads(raw)))
        said += [("assistant", call_line(name, json.loads(raw), tools)), ("tool", result_text(observation.content))]
    return state, said


def row_of(tokenizer: Tokenizer, draft: BundleDraft, said: Said) -> tuple[list[int], list[bool]]:
    ids = tokenizer.encode(opening(draft)).ids
    mask = [False] * len(ids)
    for role, text in said:
        head = tokenizer.encode(f"<|{role}|>").ids
        body = tokenizer.encode(f" {text}{END if role == 'assistant' else ''}").ids
        ids, mask = [*ids, *head, *body], [*mask, *[False] * len(head), *[role == "assistant"] * len(body)]
    return ids, mask


def logprobs(model: CausalLM, rows: Sequence[tuple[Sequence[int], Sequence[bool]]]) -> Tensor:
    """Log-probabilities of all masked tokens of all rows, in order."""
    ids = torch.tensor([token for row, _ in rows for token in row])
    row_T = torch.repeat_interleave(torch.arange(len(rows)), torch.tensor([len(row) for row, _ in rows]))
    at = torch.tensor([kept for _, mask in rows for kept in mask]).nonzero().squeeze(1)
    return model(ids, row_T, at - 1).log_softmax(-1).gather(1, ids[at].unsqueeze(1)).squeeze(1)


class Decoder:
    """Lock-step decoding with a static cache: every sequence is at the same position."""

    def __init__(self, model: CausalLM, sequences: int, length: int) -> None:
        self.model, self.at = model, 0
        heads, width = model.config["num_attention_heads"], model.config["head_dim"]
        self.cache = [torch.zeros(2, sequences, heads, length, width) for _ in model.model.layers]

    def keep(self, places: Sequence[int]) -> None:
        self.cache = [part[:, torch.tensor(places, dtype=torch.long)] for part in self.cache]

    def step(self, ids: Tensor, wanted: Tensor) -> Tensor:
        """Logits after the tokens, for the wanted sequences alone."""
        x, angle = self.model.model.embed_tokens(ids), self.at * self.model.rate
        cos, sin = angle.cos().repeat(2), angle.sin().repeat(2)
        for layer, cache in zip(self.model.model.layers, self.cache, strict=True):
            attention, seen = layer.self_attn, layer.input_layernorm(x)
            q, k, v = (
                part(seen).unflatten(-1, (-1, attention.head_dim)) for part in (attention.q_proj, attention.k_proj, attention.v_proj)
            )
            q, k = (y * cos + torch.cat((-y.chunk(2, -1)[1], y.chunk(2, -1)[0]), -1) * sin for y in (q, k))
            cache[0, :, :, self.at], cache[1, :, :, self.at] = k, v
            past = cache[..., : self.at + 1, :]
            x = x + attention.o_proj(functional.scaled_dot_product_attention(q.unsqueeze(2), past[0], past[1]).squeeze(2).flatten(1))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        self.at += 1
        return self.model.lm_head(self.model.model.norm(x[wanted]))


@dataclass
class Rollout:
    draft: BundleDraft
    start: Any
    state: Any
    queue: list[int]
    ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logprob: list[float] = field(default_factory=list)
    answer: list[int] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    ended_by: str | None = None
    passed: bool = False
    share: float = 0.0

    def answered(self, tokenizer: Tokenizer) -> None:
        """Carry out the answer that just ended, or end."""
        text = tokenizer.decode(self.answer).strip()
        self.answer, self.answers = [], [*self.answers, text]
        name = text.split(" ")[0]
        if name not in self.draft.request["tools"]:
            self.ended_by = "finished"
        elif len(self.answers) >= LIMITS["calls"]:
            self.ended_by = "turn_limit"
        else:
            tool, raw = parsed_line(text, DESK.tools(self.draft, turn=0))
            self.state, observation = DESK.call(self.state, ToolCall(tool, json.loads(raw)))
            self.queue = tokenizer.encode(f"<|tool|> {result_text(observation.content)}<|assistant|>").ids[::-1]

    def judged(self) -> None:
        verdict = desk_conditions(DESK.view(self.start), DESK.view(self.state), (), JudgeTask(self.draft, DESK.material))
        self.passed = bool(verdict.passed) and self.ended_by == "finished"
        due = {duty.ticket_id for duty in plan(rule_of(self.draft.spec["rule"]), self.start)}
        old = {mail.id for mail in self.start.outbox}
        mailed = {mail.ticket_id for mail in self.state.outbox if mail.id not in old}
        self.share = float(np.mean([(ticket.id in mailed) == (ticket.id in due) for ticket in self.start.tickets]))


@torch.no_grad()
def sampled(
    model: CausalLM, tokenizer: Tokenizer, drafts: Sequence[BundleDraft], temperature: float, generator: torch.Generator
) -> list[Rollout]:
    """One judged rollout a draft."""
    end = tokenizer.token_to_id(END)
    states = [DESK.reset(draft, seed=0) for draft in drafts]
    found = [
        Rollout(draft, state, state, tokenizer.encode(f"{opening(draft)}<|assistant|>").ids[::-1])
        for draft, state in zip(drafts, states, strict=True)
    ]
    for rollout in found:
        rollout.ids, rollout.mask = [rollout.queue.pop()], [False]
    live, decoder = list(found), Decoder(model, len(found), LIMITS["tokens"])
    while live and decoder.at < LIMITS["tokens"]:
        wanted = [place for place, rollout in enumerate(live) if not rollout.queue]
        logits = decoder.step(torch.tensor([rollout.ids[-1] for rollout in live]), torch.tensor(wanted, dtype=torch.long))
        drawn = logits.argmax(-1) if temperature == 0 else (logits / temperature).softmax(-1).multinomial(1, generator=generator).squeeze(1)
        values = logits.log_softmax(-1).gather(1, drawn.unsqueeze(1)).squeeze(1).tolist()
        told = dict(zip(wanted, zip(drawn.tolist(), values, strict=True), strict=True))
        for place, rollout in enumerate(live):
            if rollout.queue:
                rollout.ids, rollout.mask = [*rollout.ids, rollout.queue.pop()], [*rollout.mask, False]
                continue
            token, value = told[place]
            rollout.ids.append(token), rollout.mask.append(True), rollout.logprob.append(value)
            if token == end:
                rollout.answered(tokenizer)
            else:
                rollout.answer.append(token)
                rollout.ended_by = "token_limit" if len(rollout.answer) >= LIMITS["call_tokens"] else None
        kept = [place for place, rollout in enumerate(live) if rollout.ended_by is None]
        if len(kept) < len(live):
            live = [live[place] for place in kept]
            decoder.keep(kept)
    for rollout in found:
        rollout.judged()
    return found


def behaviour(found: Sequence[Rollout]) -> dict[str, str]:
    """Mailed of opened tickets, by why the ticket is due or not."""
    counts: Counter[tuple[str, str]] = Counter()
    for rollout in found:
        rule, facts = rule_of(rollout.draft.spec["rule"]), facts_of(rollout.start)
        due = {duty.ticket_id for duty in plan(rule, rollout.start)}
        old = {mail.id for mail in rollout.start.outbox}
        mailed = {mail.ticket_id for mail in rollout.state.outbox if mail.id not in old}
        opened = {words[1] for answer in rollout.answers if len(words := answer.split()) > 1 and words[0] == "get_ticket"}
        for ticket in rollout.start.tickets:
            if ticket.id in opened:
                kind = "due" if ticket.id in due else "cooling" if holds(rule.when, ticket, facts) else "no match"
                kind += "" if kind != "no match" or not cooling(rule, ticket, facts) else " and cooling"
                counts[kind, "opened"] += 1
                counts[kind, "mailed"] += ticket.id in mailed
    return {kind: f"{counts[kind, 'mailed']}/{counts[kind, 'opened']}" for kind in sorted({kind for kind, _ in counts})}


def measured(stage: str, policy: tuple[CausalLM, Tokenizer], drafts: Sequence[BundleDraft], seed: int, cpu_s: float) -> None:
    for temperature in (1.0, 0.0):
        found = sampled(*policy, drafts, temperature, torch.Generator().manual_seed(seed))
        success, ended = np.mean([r.passed for r in found]), np.mean([r.ended_by == "finished" for r in found])
        print(
            f"{stage} T={temperature:.0f} n={len(found)} success={success:.3f} finished={ended:.2f} cpu_s={cpu_s:.0f} {behaviour(found)}",
            flush=True,
        )


def trained(model: CausalLM, losses: Iterator[Tensor], steps: int, rate: float, name: str, decay: float = 1.0) -> float:
    """CPU seconds of so many AdamW steps with a warm-up of 20 and linear decay to a twentieth."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    began, seen = time.process_time(), []
    for step, loss in enumerate(islice(losses, steps)):
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 20) * max(0.05, min(1.0, (1 - step / steps) / decay))
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        seen.append(loss.item())
        if (step + 1) % max(1, steps // 5) == 0:
            print(f"  {name} {step + 1} loss={np.mean(seen[-40:]):.4f} cpu_s={time.process_time() - began:.1f}", flush=True)
    return time.process_time() - began


def copying_losses(model: CausalLM, seed: int) -> Iterator[Tensor]:
    for batch in copy_batches(model.config["vocab_size"], torch.Generator().manual_seed(seed), first_id=len(SPECIAL)):
        at = batch.mask_T.nonzero().squeeze(1)
        yield functional.cross_entropy(model(batch.ids_T, batch.row_T, at - 1), batch.ids_T[at])


def imitation_losses(model: CausalLM, rows: Sequence[tuple[list[int], list[bool]]], batch_tokens: int, seed: int) -> Iterator[Tensor]:
    rng, order = Random(seed), []
    while True:
        chosen: list[Any] = []
        while sum(len(row) for row, _ in chosen) < batch_tokens:
            order = order or rng.sample(range(len(rows)), len(rows))
            chosen.append(rows[order.pop()])
        yield -logprobs(model, chosen).mean()


def reinforced(policy: tuple[CausalLM, Tokenizer], drafts: Sequence[BundleDraft], options: argparse.Namespace) -> float:
    """CPU seconds of the rounds: group-normalised advantages, token clip .2/.28, rollout token mean."""
    model, rng, order = policy[0], Random(options.seed), []
    generator = torch.Generator().manual_seed(1000 + options.seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=options.rl_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    began = time.process_time()
    for number in range(options.rounds):
        for group in optimiser.param_groups:
            group["lr"] = options.rl_rate * (max(0.05, 1 - number / options.rounds) if options.rl_decay else 1.0)
        order = order if len(order) >= options.groups else rng.sample(range(len(drafts)), len(drafts))
        group_drafts = [drafts[order.pop()] for _ in range(options.groups)]
        found = sampled(*policy, [draft for draft in group_drafts for _ in range(options.size)], 1.0, generator)
        passed = np.array([float(r.passed) for r in found])
        told = np.array(
            [
                (1 - options.success) * r.share * (r.ended_by == "finished") + options.success * r.passed
                if options.shaped
                else float(r.passed)
                for r in found
            ]
        )
        reward = told.reshape(options.groups, options.size)
        spread = reward.std(1, keepdims=True)
        scale = spread + 1e-6 if options.std else 0.3
        adv = np.where(spread > 1e-9, (reward - reward.mean(1, keepdims=True)) / scale, 0.0).reshape(-1)
        for part_number in range(options.updates):
            mine = range(part_number * len(found) // options.updates, (part_number + 1) * len(found) // options.updates)
            taken = [place for place in mine if adv[place] != 0]
            if not taken:
                continue
            optimiser.zero_grad()
            for first in range(0, len(taken), 64):
                part = [found[place] for place in taken[first : first + 64]]
                new = logprobs(model, [(r.ids, r.mask) for r in part])
                old = torch.tensor([value for r in part for value in r.logprob])
                share = [adv[place] / len(found[place].logprob) for place in taken[first : first + 64]]
                weight = torch.tensor([value for value, r in zip(share, part, strict=True) for _ in r.logprob], dtype=torch.float32)
                ratio = (new - old).exp()
                (-torch.minimum(ratio * weight, ratio.clamp(0.8, 1.28) * weight).sum() / len(mine)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
        if number % 5 == 4:
            share = np.mean(spread > 1e-9)
            print(
                f"  round {number + 1} success={passed.mean():.3f} reward={reward.mean():.3f} {behaviour(found)} groups with spread={share:.2f} cpu_s={time.process_time() - began:.1f}",
                flush=True,
            )
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--preset", default="0.2M")
    parser.add_argument("--judging", nargs="+", default=["cooldown"])
    parser.add_argument("--rows", default="drawn")
    parser.add_argument("--shaped", action="store_true")
    parser.add_argument("--tasks", type=int, default=1500)
    parser.add_argument("--noise", type=float, default=0.3)
    parser.add_argument("--copy-steps", type=int, default=300)
    parser.add_argument("--sft-steps", type=int, default=1200)
    parser.add_argument("--batch-tokens", type=int, default=1200)
    parser.add_argument("--rate", type=float, default=5e-3)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--groups", type=int, default=16)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--updates", type=int, default=1)
    parser.add_argument("--std", type=int, default=1)
    parser.add_argument("--decay", type=float, default=0.5)
    parser.add_argument("--tries", type=int, default=6)
    parser.add_argument("--lapse", type=float, default=0.0)
    parser.add_argument("--kept", default="")
    parser.add_argument("--fresh", type=int, default=0, help="so many tasks without traces are reinforced; 0 for those with traces")
    parser.add_argument("--more-steps", type=int, default=0, help="imitate for so many more steps instead of reinforcing")
    parser.add_argument("--success", type=float, default=0.5, help="weight of success in the shaped reward")
    parser.add_argument("--rl-decay", type=int, default=0)
    parser.add_argument("--rl-rate", type=float, default=1e-3)
    parser.add_argument("--validation", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)
    known = slice_tasks(options.tasks + options.fresh, 0, "train", judging=options.judging, rows=options.rows)
    drafts, unseen = known[: options.tasks], known[options.tasks :] or known
    held = slice_tasks(options.validation, 0, "validation", "instances", judging=options.judging, rows=options.rows)
    said = [
        played(draft, WALKS["noisy_teacher"](draft, noise=options.noise, lapse=options.lapse, tries=number + 1))[1]
        for number in range(options.tries)
        for draft in drafts
    ]
    texts = [text for draft in drafts for text in (draft.request["system"], draft.request["turns"][-1][0]["content"])]
    tokenizer = trained_tokenizer([*texts, *(text for lines in said for _, text in lines)])
    rows = [row_of(tokenizer, draft, lines) for draft, lines in zip(drafts * options.tries, said, strict=True)]
    config = llama_config(
        preset_of(options.preset), vocab_size=tokenizer.get_vocab_size(), end_id=tokenizer.token_to_id(END), pad_id=tokenizer.token_to_id(PAD)
    )  # fmt: skip
    model = CausalLM(config).initialise(torch.Generator().manual_seed(options.seed))
    print(vars(options), f"parameters={sum(w.numel() for w in model.parameters())} vocabulary={config['vocab_size']}", flush=True)
    policy = model, tokenizer
    if options.kept and Path(options.kept).exists():
        model.load_state_dict(torch.load(options.kept))
    else:
        trained(model, copying_losses(model, options.seed), options.copy_steps, options.rate, "copy")
        losses = imitation_losses(model, rows, options.batch_tokens, options.seed)
        spent = trained(model, losses, options.sft_steps, options.rate, "sft", options.decay)
        if options.kept:
            torch.save(model.state_dict(), options.kept)
        measured("after sft", policy, held, options.seed, spent)
    if options.more_steps:
        losses = imitation_losses(model, rows, options.batch_tokens, options.seed + 1)
        spent = trained(model, losses, options.more_steps, options.rate, "more sft", options.decay)
        measured("after more sft", policy, held, options.seed, spent)
    else:
        measured("after rl", policy, held, options.seed, reinforced(policy, unseen, options))


if __name__ == "__main__":
    main()
