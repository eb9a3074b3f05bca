"""What sandboxed code may use up, and that nothing of it is left behind."""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from training.worlds.runtime import Limits, Program, Sandbox
from training.worlds.runtime_launch import interpreter

MB = 1 << 20


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    return Sandbox("hostile")


def with_token(token: str) -> list[int]:
    """Processes of this machine whose command line holds the token."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if token.encode() in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                pass
    return found


def gone(token: str, within_s: float = 10.0) -> bool:
    deadline = time.monotonic() + within_s
    while with_token(token):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


SURVIVE = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for n in (1, 2, 15): __import__("signal").signal(n, __import__("signal").SIG_IGN)
        os.execv({python!r}, [{python!r}, "-c", "import time; time.sleep(60)", {token!r}])
    os._exit(0)
os.wait()
time.sleep(0.3)
"""


def survivor(token: str) -> str:
    return SURVIVE.format(python=str(interpreter()), token=token)


def test_what_it_started_ends_with_it_however_it_hides(sandbox: Sandbox) -> None:
    token = f"left-{uuid.uuid4()}"
    subprocess.run([str(interpreter()), "-S", "-c", survivor(token)], check=True)
    left = with_token(token)
    assert len(left) == 1, "without a sandbox it survives"
    os.kill(left[0], signal.SIGKILL)
    token = f"left-{uuid.uuid4()}"
    assert sandbox.run(Program(source=survivor(token)), limits=Limits(processes=8)).ok
    assert gone(token)


def test_everything_ends_when_the_process_that_started_it_is_killed() -> None:
    token = f"orphan-{uuid.uuid4()}"
    program = f"import sys, time\nsys.stdin.readline()\nprint('up', flush=True)\n{survivor(token)}\ntime.sleep(60)"
    starter = f"""
from training.worlds.runtime import Limits, Program, Sandbox
import threading
workers = []
def work():
    workers.append(Sandbox("hostile").start(Program(source={program!r}), limits=Limits(processes=8)))
    workers[-1].ask(b"go")
thread = threading.Thread(target=work); thread.start(); thread.join()
work()
import time
print("started", flush=True); time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"started\n"
    deadline = time.monotonic() + 20
    # The first was started by a thread that is over: that alone must not end it.
    while len(survivors := [pid for pid in with_token(token) if b"/sandbox.py" not in Path(f"/proc/{pid}/cmdline").read_bytes()]) < 2:
        assert time.monotonic() < deadline, survivors
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert gone(token)


@pytest.mark.parametrize(
    ("source", "ended"),
    [
        ("while True: pass", "cpu"),
        ("import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass", "cpu"),
        ("import time; time.sleep(1000)", "wall"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "wall"),
        ("import os, time\nfor fd in (0, 1, 2): os.close(fd)\ntime.sleep(1000)", "wall"),
        ("import atexit\ndef late():\n  import time; time.sleep(1000)\natexit.register(late)", "wall"),
        ("class Late:\n  def __del__(self):\n    import time; time.sleep(1000)\nlate = Late()\ndel late", "wall"),
        ("held = []\nwhile True: held.append(bytearray(1 << 20))", "memory"),
        ("import os\nwhile True: os.write(1, b'x' * 65536)", "output"),
        ("import os\nwhile True: os.write(2, b'x' * 65536)", "output"),
        ("for n in range(10**9): open(str(n), 'w').close()", "scratch"),
        ("import os\nfor n in range(10**9): os.mkdir(str(n))", "scratch"),
        ("import os\nopen('a', 'w').close()\nfor n in range(10**9): os.symlink('a', str(n))", "scratch"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "signal"),
        ("raise SystemExit(3)", "exit"),
    ],
)
def test_a_run_ends_by_the_limit_that_it_reached(source: str, ended: str, sandbox: Sandbox) -> None:
    limits = Limits(cpu_s=1, wall_s=0.6 if ended == "wall" else 30.0, memory_bytes=128 * MB, output_bytes=MB)
    report = sandbox.run(Program(source=source), limits=limits)
    assert report.ended == ended, report
    assert len(report.stdout) + len(report.stderr) <= 2 * MB


def test_a_fork_bomb_stays_within_its_number_of_processes(sandbox: Sandbox) -> None:
    token = f"bomb-{uuid.uuid4()}"
    source = f"""
import os
token = {token!r}
while True:
    try: os.fork()
    except OSError: pass
"""
    report = sandbox.run(Program(source=source), limits=Limits(processes=1, wall_s=1.0, cpu_s=30))
    assert report.ended == "wall" and gone(token)
    seen = []
    worker = sandbox.start(Program(argv=_python("-c", source, token)), limits=Limits(processes=12, cpu_s=30))
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        seen.append(len(with_token(token)))
        time.sleep(0.05)
    worker.close()
    # The sandbox's own two processes carry the token in their command lines, too.
    assert 12 <= max(seen) <= 12 + 4 and gone(token)


def _python(*arguments: str) -> tuple[str, ...]:
    return (str(interpreter()), *arguments)


def test_threads_are_limited_too(sandbox: Sandbox) -> None:
    source = """
import threading, time
for n in range(1000):
    try: threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
    except RuntimeError: break
import os
os.write(1, str(n).encode())
os._exit(0)
"""
    report = sandbox.run(Program(source=source))
    assert report.ok and 8 <= int(report.stdout) <= 40


def test_threads_can_be_forbidden(sandbox: Sandbox) -> None:
    source = "import threading\ntry: threading.Thread(target=print).start()\nexcept RuntimeError: print('refused')"
    assert sandbox.run(Program(source=source), limits=Limits(threads=False)).stdout == b"refused\n"
    assert sandbox.run(Program(source=source)).stdout == b"\n"


def test_ten_gigabytes_of_files_end_at_the_size_of_the_scratch_folder(sandbox: Sandbox) -> None:
    source = """
import os
total, errors = 0, set()
for n in range(10):
    try:
        with open(f"f{n}", "wb", buffering=0) as file:
            for _ in range(1024): total += file.write(b"x" * (1 << 20))
    except OSError as error: errors.add(error.errno)
print(total, sorted(errors))
"""
    report = sandbox.run(Program(source=source), limits=Limits(scratch_bytes=8 * MB, file_bytes=3 * MB))
    total, *errors = report.stdout.decode().replace("[", "").replace("]", "").replace(",", "").split()
    assert report.ok and int(total) <= 8 * MB and errors == ["27", "28"]


def test_without_a_scratch_folder_nothing_can_be_written(sandbox: Sandbox) -> None:
    source = "import os\nfor place in ('/scratch', '/', '/task', '/dev'):\n  try: open(place + '/x', 'w'); print('wrote', place)\n  except OSError: pass"
    report = sandbox.run(Program(source=source), limits=Limits(scratch_bytes=0))
    assert report.ok and report.stdout == b""


def test_memory_that_children_take_is_limited_for_each(sandbox: Sandbox) -> None:
    source = """
import mmap
for size in (64, 4096):
    try: mmap.mmap(-1, size << 20); print(size)
    except OSError as error: print(error.errno)
"""
    assert sandbox.run(Program(source=source), limits=Limits(memory_bytes=256 * MB)).stdout == b"64\n12\n"


def test_limits_cannot_be_raised_from_inside(sandbox: Sandbox) -> None:
    source = """
import resource
for name in ("CPU", "AS", "NPROC", "FSIZE", "NOFILE", "CORE", "MEMLOCK"):
    which = getattr(resource, "RLIMIT_" + name)
    try: resource.setrlimit(which, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)); print("raised", name)
    except (ValueError, OSError): pass
"""
    report = sandbox.run(Program(source=source))
    assert report.ok and report.stdout == b""
