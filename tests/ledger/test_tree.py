"""The Merkle tree: published vectors, agreement with pymerkle, and properties of proofs made from tiles."""

import hashlib
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymerkle import InmemoryTree

from ledger import tree
from ledger.errors import TreeError
from ledger.proof import ProofError, SplitView, check_consistency, inclusion_root, node_hash

# The eight entries, roots and proofs of github.com/google/certificate-transparency, python/ct/crypto/merkle_test.py, and of
# github.com/transparency-dev/merkle, testonly.
ENTRIES = [
    bytes.fromhex(text) for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
L0 = ROOTS[1]
L1, L4 = (
    "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
    "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
)
N23, N45 = (
    "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
    "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
)
N67, N47 = (
    "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
    "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
)
INCLUSION = {
    (0, 1): [], (0, 2): [L1], (1, 2): [L0], (2, 3): [ROOTS[2]], (1, 5): [L0, N23, L4], (0, 8): [L1, N23, N47], (5, 8): [L4, N67, ROOTS[4]],
}  # fmt: skip
CONSISTENCY = {(1, 1): [], (1, 8): [L1, N23, N47], (6, 8): [N45, N67, ROOTS[4]], (2, 5): [N23, L4]}


def leaf(entry: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + entry).digest()


@cache
def leaves(count: int) -> list[bytes]:
    return [leaf(number.to_bytes(4, "big")) for number in range(count)]


class Tiles:
    """Storage as the database has it: full tiles, their roots, and leaves; a partial tile is made of the roots below or of leaves."""

    def __init__(self, hashes: list[bytes]) -> None:
        self.edge, filled = tree.extend(tree.Edge(), hashes)
        self.leaves, self.full, self.reads = hashes, {(tile.level, tile.index): tile for tile in filled}, 0

    def __call__(self, level: int, index: int, width: int) -> bytes:
        self.reads += 1
        if (level, index) in self.full:
            return self.full[level, index].hashes
        assert width < tree.WIDTH
        places = range(256 * index, 256 * index + width)
        return b"".join(self.leaves[place] if level == 0 else self.full[level - 1, place].root for place in places)


VECTOR = Tiles([leaf(entry) for entry in ENTRIES])
SMALL = Tiles(leaves(600))


def reference_root(hashes: list[bytes]) -> bytes:
    """MTH of RFC 9162 section 2.1.1, as written there."""
    if len(hashes) < 2:
        return hashes[0] if hashes else hashlib.sha256(b"").digest()
    split = 1 << (len(hashes) - 1).bit_length() - 1
    return node_hash(reference_root(hashes[:split]), reference_root(hashes[split:]))


@pytest.mark.parametrize("size", range(9))
def test_roots_are_the_published_ones(size: int) -> None:
    assert tree.root(VECTOR, size).hex() == ROOTS[size]
    assert tree.edge_root(tree.extend(tree.Edge(), VECTOR.leaves[:size])[0]).hex() == ROOTS[size]


@pytest.mark.parametrize(("place", "path"), INCLUSION.items())
def test_inclusion_paths_are_the_published_ones(place: tuple[int, int], path: list[str]) -> None:
    assert [item.hex() for item in tree.inclusion(VECTOR, *place)] == path


@pytest.mark.parametrize(("sizes", "path"), CONSISTENCY.items())
def test_consistency_proofs_are_the_published_ones(sizes: tuple[int, int], path: list[str]) -> None:
    assert [item.hex() for item in tree.consistency(VECTOR, *sizes)] == path


@pytest.fixture(scope="module")
def theirs() -> InmemoryTree:
    other = InmemoryTree(algorithm="sha256")
    for number in range(600):
        other.append_entry(number.to_bytes(4, "big"))
    return other


SIZES = [*range(1, 70), 127, 128, 129, 255, 256, 257, 258, 300, 383, 384, 511, 512, 513, 599, 600]


@pytest.mark.parametrize("size", SIZES)
def test_roots_and_inclusion_paths_agree_with_pymerkle(size: int, theirs: InmemoryTree) -> None:
    assert tree.root(SMALL, size) == theirs.get_root(size)
    for index in {0, 1, size // 3, size // 2, size - 2, size - 1} & set(range(size)):
        # Its path begins with the leaf itself and counts leaves from 1.
        assert [SMALL.leaves[index], *tree.inclusion(SMALL, index, size)] == theirs.prove_inclusion(index + 1, size).path


@pytest.mark.parametrize("new", SIZES)
def test_consistency_proofs_agree_with_pymerkle(new: int, theirs: InmemoryTree) -> None:
    for old in {*range(1, min(new, 34)), new // 2, new * 3 // 4, new - 1, new} & set(range(1, new + 1)):
        theirs_as_rfc = rfc_shape(theirs.prove_consistency(old, new))
        assert tree.consistency(SMALL, old, new) == ([] if old == new else theirs_as_rfc), (old, new)


def rfc_shape(proof: object) -> list[bytes]:
    """A proof of pymerkle in the shape of RFC 9162.

    Pymerkle takes apart the subtree right of the older tree's last one (its leading hashes outside the older tree); the RFC does not. The RFC
    leaves out the older tree's last subtree where that is the whole older tree.
    """
    path, subset = list(proof.path), list(proof.subset)  # type: ignore[attr-defined]
    own = subset.index(1)
    sibling = path[:1]
    for right in path[1:own]:
        sibling = [node_hash(sibling[0], right)]
    alone = sum(subset) == 1
    return [*([] if alone else [path[own]]), *(sibling if own else []), *path[own + 1 :]]


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 511, 512, 600, 65_535, 65_536, 65_537, 70_000])
def test_the_root_at_any_size_is_that_of_the_definition(size: int) -> None:
    tiles = Tiles(leaves(70_000)[:size])
    assert tree.edge_root(tiles.edge) == reference_root(tiles.leaves) == tree.root(tiles, size)


def test_tiles_are_those_of_the_specification() -> None:
    """C2SP tlog-tiles, partial tiles: the example of 70,000 entries."""
    tiles = Tiles(leaves(70_000))
    assert sorted(tiles.full) == [*((0, index) for index in range(273)), (1, 0)]
    assert [len(hashes) // 32 for hashes in tiles.edge.tiles] == [112, 17, 1]
    assert [
        tree.tile_width(70_000, 0, 273),
        tree.tile_width(70_000, 1, 1),
        tree.tile_width(70_000, 2, 0),
        tree.tile_width(70_000, 0, 274),
    ] == [112, 17, 1, 0]
    assert tiles.full[0, 272].hashes == b"".join(tiles.leaves[272 * 256 : 273 * 256])
    assert tiles.full[1, 0].root == reference_root(tiles.leaves[:65_536])
    assert [len(hashes) // 32 for hashes in tree.extend(tree.Edge(), leaves(256))[0].tiles] == [0, 1]


@given(st.lists(st.integers(1, 700), min_size=1, max_size=6))
@settings(max_examples=40, deadline=None)
def test_appending_in_parts_gives_the_tree_of_appending_at_once(parts: list[int]) -> None:
    hashes = leaves(4200)[: sum(parts)]
    edge, filled = tree.Edge(), []
    bounds = [0]
    for part in parts:
        bounds.append(bounds[-1] + part)
    for start, end in pairwise(bounds):
        edge, more = tree.extend(edge, hashes[start:end])
        filled += more
    whole = Tiles(hashes)
    assert edge == whole.edge == tree.read_edge(whole, len(hashes))
    assert {(tile.level, tile.index): tile for tile in filled} == whole.full and len(filled) == len(whole.full)


@pytest.mark.parametrize(
    "sizes", [[*range(1, 50), 255, 256, 257, 513], pytest.param(range(1, 601), marks=pytest.mark.slow)], ids=["some", "all up to 600"]
)
def test_every_index_of_a_size_is_proved(sizes: Sequence[int]) -> None:
    for size in sizes:
        root = tree.root(SMALL, size)
        assert all(inclusion_root(SMALL.leaves[index], index, size, tree.inclusion(SMALL, index, size)) == root for index in range(size))


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_changed_bit_index_size_or_length_breaks_an_inclusion_proof(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 600))
    index = data.draw(st.integers(0, size - 1))
    path, root = tree.inclusion(SMALL, index, size), tree.root(SMALL, size)
    assert inclusion_root(SMALL.leaves[index], index, size, path) == root
    hashes = [SMALL.leaves[index], *path]
    broken = flipped(data, hashes)
    assert inclusion_root(broken[0], index, size, broken[1:]) != root
    other = data.draw(st.integers(0, size + 2).filter(lambda value: value != index))
    assert not leads_to(root, SMALL.leaves[index], other, size, path)
    for wrong in (path[:-1], [*path, root]):
        if wrong != path:
            with pytest.raises(ProofError, match=f"inclusion path has {len(wrong)} hashes; leaf {index} of {size} needs {len(path)}"):
                inclusion_root(SMALL.leaves[index], index, size, wrong)


def flipped(data: st.DataObject, hashes: list[bytes]) -> list[bytes]:
    place, bit = data.draw(st.integers(0, len(hashes) - 1)), data.draw(st.integers(0, 255))
    value = int.from_bytes(hashes[place], "big") ^ 1 << bit
    return [*hashes[:place], value.to_bytes(32, "big"), *hashes[place + 1 :]]


def leads_to(root: bytes, hashed: bytes, index: int, size: int, path: list[bytes]) -> bool:
    try:
        return inclusion_root(hashed, index, size, path) == root
    except ProofError:
        return False


def test_a_leaf_is_not_proved_in_the_tree_of_another_size() -> None:
    for size in range(1, 64):
        for other in set(range(1, 64)) - {size}:
            assert not leads_to(tree.root(SMALL, other), SMALL.leaves[0], 0, other, tree.inclusion(SMALL, 0, size))


@pytest.mark.parametrize("new", [*range(1, 40), 255, 256, 257, 513])
def test_every_older_size_is_consistent(new: int) -> None:
    for old in range(new + 1):
        check_consistency(old, tree.root(SMALL, old), new, tree.root(SMALL, new), tree.consistency(SMALL, old, new))


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_changed_bit_size_or_length_breaks_a_consistency_proof(data: st.DataObject) -> None:
    new = data.draw(st.integers(2, 600))
    old = data.draw(st.integers(1, new - 1))
    path, old_root, new_root = tree.consistency(SMALL, old, new), tree.root(SMALL, old), tree.root(SMALL, new)
    check_consistency(old, old_root, new, new_root, path)
    broken = flipped(data, [old_root, new_root, *path])
    other = data.draw(st.integers(1, new - 1).filter(lambda value: value != old)) if new > 2 else new
    for old_size, first, second, hashes in (
        (old, broken[0], broken[1], broken[2:]), (other, old_root, new_root, path), (old, old_root, new_root, path[:-1]), (old, old_root, new_root, [*path, new_root]),
    ):  # fmt: skip
        with pytest.raises(ProofError):
            check_consistency(old_size, first, new, second, hashes)


def test_a_rewritten_history_has_no_consistency_proof() -> None:
    other = Tiles([leaf(b"forged"), *SMALL.leaves[1:]])
    with pytest.raises(ProofError, match="does not connect the roots of sizes 300 and 600"):
        check_consistency(300, tree.root(SMALL, 300), 600, tree.root(other, 600), tree.consistency(other, 300, 600))
    with pytest.raises(SplitView, match="two checkpoints of size 600 have different roots"):
        check_consistency(600, tree.root(SMALL, 600), 600, tree.root(other, 600), [])


def test_proofs_read_few_tiles() -> None:
    tiles = Tiles(leaves(70_000))
    for index in (0, 255, 256, 40_000, 65_535, 65_536, 69_999):
        tiles.reads = 0
        tree.inclusion(tiles, index, 70_000)
        assert tiles.reads <= 5
    tiles.reads = 0
    tree.consistency(tiles, 40_001, 70_000)
    assert tiles.reads <= 5


def test_a_tile_of_a_larger_tree_serves_a_smaller_one() -> None:
    tiles = Tiles(leaves(600))
    assert tree.root(tiles, 300) == reference_root(leaves(600)[:300])
    assert tree.inclusion(tiles, 299, 300) == tree.inclusion(Tiles(leaves(600)[:300]), 299, 300)


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (lambda: tree.extend(tree.Edge(), [b"x" * 32, b"x" * 31]), "leaf hash of 31 bytes; allowed: 32"),
        (lambda: tree.inclusion(SMALL, 5, 5), "leaf 5 of a tree of 5 leaves; allowed: 0 to 4"),
        (lambda: tree.inclusion(SMALL, -1, 5), "leaf -1 of a tree"),
        (lambda: tree.consistency(SMALL, 6, 5), "consistency from size 6 to 5; allowed: 0 <= old <= new"),
        (
            lambda: tree.root(lambda level, index, width: b"x" * 32, 2),
            "tile 0/0 of a tree of 2 leaves has 32 bytes; needed: 2 hashes of 32",
        ),
    ],
)
def test_misuse_is_refused(act: object, told: str) -> None:
    with pytest.raises(TreeError, match=told):
        act()  # type: ignore[operator]
