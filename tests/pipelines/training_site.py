"""A tiny experiment that trains, for the tests of the assets of training."""

TRAINS = """\
name = "{name}"
seed = 1
reward = "partial_conditions"
[harness]
tool_format = "compact"
tools_in_prompt = false
results = "values"
calls = 10
calls_per_turn = 24
max_tokens = 8
[[tasks]]
world = "ticket_desk"
count = 24
seed = 3
options = {{ families = true, level = 0, split = "train", judging = ["cooldown"], rows = "drawn" }}
[[tasks]]
world = "ticket_desk"
count = 6
seed = 4
gated = false
options = {{ families = true, level = 0, split = "validation", slice = "instances", judging = ["cooldown"], rows = "drawn" }}
[train]
keep_checkpoints = 1
[train.evaluation]
tasks = 6
scripts = ["mails_everyone"]
[[train.stages]]
stage = "copy"
steps = 4
batch_tokens = 300
optimiser = {{ learning_rate = 5e-3 }}
[[train.stages]]
stage = "supervised"
steps = 6
traces = [{{ policy = "noisy_teacher", rollouts = 12, params = {{ noise = 0.6 }} }}]
optimiser = {{ learning_rate = 5e-3 }}
[[train.stages]]
stage = "reinforce"
rounds = 2
groups = 4
group_size = 2
advantage = {{ name = "batch_whitened" }}
optimiser = {{ learning_rate = 1e-3 }}
"""
