"""An impact as the text of a graph: the subject, what came of it by noun, and the model versions with their shares. Pure."""

from collections.abc import Sequence

from ledger.recall import Impact, VersionShare

VERSIONS_SHOWN = 40


def dot(impact: Impact) -> str:
    """The graph in the language of Graphviz."""
    nodes, edges = _graph(impact)
    lines = [f'  {name} [label="{_quoted(label)}"];' for name, label in nodes]
    lines += [f'  {parent} -> {child} [label="{_quoted(label)}"];' for parent, child, label in edges]
    return "\n".join(["digraph recall {", "  rankdir=LR;", "  node [shape=box];", *lines, "}"])


def mermaid(impact: Impact) -> str:
    """The graph in the language of Mermaid."""
    nodes, edges = _graph(impact)
    lines = [f'  {name}["{_entities(label)}"]' for name, label in nodes]
    lines += [f'  {parent} -->|"{_entities(label)}"| {child}' if label else f"  {parent} --> {child}" for parent, child, label in edges]
    return "\n".join(["flowchart LR", *lines])


def _graph(impact: Impact) -> tuple[list[tuple[str, str]], list[tuple[str, str, str]]]:
    """Name and label of each node; parent, child and label of each edge. Versions beyond `VERSIONS_SHOWN` are one node that counts them."""
    nodes = [("subject", impact.subject)]
    nodes += [(_name(noun), f"{count} {noun}") for noun, count in impact.counts.items()]
    known = {noun for noun, _ in impact.links} - impact.counts.keys()
    edges = [("subject" if parent in known else _name(parent), _name(child), str(count)) for (parent, child), count in impact.links.items()]
    shown: Sequence[VersionShare] = impact.versions[:VERSIONS_SHOWN]
    place = {version.model_version: f"v{number}" for number, version in enumerate(shown)}
    for version in shown:
        name = place[version.model_version]
        nodes.append((name, f"{version.model_version}: {100 * (version.loss.share or 0.0):.1f} %"))
        above = [place[parent] for parent in version.parents if parent in place]
        edges += [(parent, name, "") for parent in above]
        if version.loss.own_scope > 0:
            edges.append((_name("update") if "update" in impact.counts else "subject", name, f"{version.loss.own_scope:g}"))
    if len(impact.versions) > len(shown):
        nodes.append(("more", f"{len(impact.versions) - len(shown)} more model versions"))
        edges.append((place[shown[-1].model_version], "more", ""))
    return nodes, edges


def _name(noun: str) -> str:
    return "n_" + "".join(character if character.isalnum() else "_" for character in noun)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _entities(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
