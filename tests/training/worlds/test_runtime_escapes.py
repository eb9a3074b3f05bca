"""Attempts to get out of the sandbox. Each runs twice: as a control without it, where it must succeed, and inside, where it must not."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from training.worlds.runtime import Limits, Program, Sandbox
from training.worlds.runtime_filter import ARCHITECTURES, REFUSED
from training.worlds.runtime_launch import find_bwrap, interpreter

PRELUDE = """
import ctypes, json, os, socket, sys
given = json.load(sys.stdin)
libc = ctypes.CDLL(None, use_errno=True)
def escaped(what): os.write(1, f"ESCAPED {what}\\n".encode())
"""
ATTEMPTS = {
    "read_a_file_of_the_user": "escaped(open(given['secret']).read())",
    "read_etc_passwd": "escaped(open('/etc/passwd').read()[:20])",
    "list_the_folder_of_the_verdict": "escaped(os.listdir(os.path.dirname(given['verdict'])))",
    "see_that_a_file_exists": "os.path.exists(given['secret']) and escaped('exists')",
    "read_the_environment": "'TALLY_ESCAPE_SECRET' in os.environ and escaped('secret')",
    "read_the_parents_environment": "escaped(len(open(f\"/proc/{given['victim']}/environ\").read()))",
    "read_a_command_line": "escaped(open(f\"/proc/{given['victim']}/cmdline\").read())",
    "read_the_parents_memory": """
iov = (ctypes.c_uint64 * 2)(ctypes.addressof(ctypes.create_string_buffer(8)), 8)
far = (ctypes.c_uint64 * 2)(8, 8)
libc.process_vm_readv(given['victim'], ctypes.byref(iov), 1, ctypes.byref(far), 1, 0)
ctypes.get_errno() == 14 and escaped('may read, only this address is empty')
""",
    "trace_another_process": "libc.ptrace(0x4206, given['victim'], 0, 0) == 0 and escaped('seized')",
    "signal_another_process": "os.kill(given['victim'], 0); escaped('signalled')",
    "end_another_process": "os.kill(given['victim'], 9); escaped('killed')",
    "write_the_verdict": "open(given['verdict'], 'a').write('passed'); escaped('wrote')",
    "write_the_verdict_when_freed": """
class Late:
    def __del__(self, open=open, escaped=escaped): open(given['verdict'], 'a').write('passed'); escaped('wrote')
late = Late(); del late
""",
    "write_the_verdict_at_exit": """
import atexit
def late(): open(given['verdict'], 'a').write('passed'); escaped('wrote')
atexit.register(late)
""",
    "write_the_verdict_from_a_pickle": """
import pickle
class Load:
    def __reduce__(self): return (exec, ("import __main__ as m; open(m.given['verdict'], 'a').write('passed'); m.escaped('wrote')",))
pickle.loads(pickle.dumps(Load()))
""",
    "write_the_verdict_through_a_symbolic_link": """
os.symlink(given['verdict'], 'link'); open('link', 'a').write('passed'); escaped('wrote')
""",
    "write_the_verdict_through_a_hard_link": "os.link(given['verdict'], 'link'); open('link', 'a').write('passed'); escaped('wrote')",
    "read_through_a_symbolic_link": "os.symlink('/etc', 'etc'); escaped(open('etc/passwd').read()[:20])",
    "write_beside_the_scratch_folder": "open('/tmp/tallystick-escape', 'w'); os.unlink('/tmp/tallystick-escape'); escaped('wrote')",
    "write_into_shared_memory": "open('/dev/shm/tallystick-escape', 'w'); os.unlink('/dev/shm/tallystick-escape'); escaped('wrote')",
    "connect_by_tcp": "socket.create_connection(('127.0.0.1', given['port']), 5).send(b'tcp'); escaped('connected')",
    "send_by_udp": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'udp', ('127.0.0.1', given['port'])); escaped('sent')",
    "connect_to_an_abstract_socket": """
s = socket.socket(socket.AF_UNIX); s.connect('\\0' + given['abstract']); escaped('connected')
""",
    "connect_to_a_socket_in_a_folder": "s = socket.socket(socket.AF_UNIX); s.connect(given['unix']); escaped('connected')",
    "use_a_descriptor_of_the_parent": """
for fd in range(3, 256):
    try: os.fstat(fd)
    except OSError: continue
    escaped(f'descriptor {fd}')
""",
    "take_memory_that_is_not_counted": "os.memfd_create('x'); escaped('memfd')",
    "take_memory_of_system_v": "libc.shmget(0, 4096, 0o1600) >= 0 and escaped('shm')",
    "make_a_user_namespace": "libc.unshare(0x10000000) == 0 and escaped('unshared')",
    "start_a_process": "os.fork() == 0 and escaped('forked')",
    "start_a_process_by_clone": "libc.syscall(56 if os.uname().machine == 'x86_64' else 220, 17, 0, 0, 0, 0) == 0 and escaped('cloned')",
    "start_a_program": "import subprocess; escaped(subprocess.run([sys.executable, '-c', 'print(1)'], capture_output=True).stdout)",
}
AS_ROOT = {
    "become_root": "os.setuid(0); escaped('root')",
    "mount_a_folder": "libc.mount(b'none', b'/mnt', b'tmpfs', 0, 0) == 0 and (libc.umount2(b'/mnt', 0), escaped('mounted'))",
    "change_the_root": "os.chroot('/'); escaped('chroot')",
    "rename_the_machine": "libc.sethostname(*(lambda n: (n, len(n)))(os.uname().nodename.encode())) == 0 and escaped('renamed')",
}
NO_CONTROL = {
    # Without a sandbox these would harm whoever runs the test.
    "signal_all_processes": "import signal; signal.signal(15, signal.SIG_IGN); os.kill(-1, 15); escaped('signalled') if os.getpid() > 8 else None",
    "overwrite_its_own_program": "open(os.environ['TASK'] + '/main.py', 'w'); escaped('wrote')",
    "overwrite_the_bootstrap": "open('/sandbox.py', 'w'); escaped('wrote')",
    "make_its_program_writable": "os.chmod(os.environ['TASK'] + '/main.py', 0o777); escaped('changed')",
    "plant_a_module_for_the_next_run": "open(os.path.dirname(json.__file__) + '/planted.py', 'w'); escaped('wrote')",
    "use_raw_disks": "[escaped(n) for n in os.listdir('/dev') if n not in ('null', 'zero', 'random', 'urandom')]",
    "learn_the_machines_name": "os.uname().nodename == 'sandbox' or escaped(os.uname().nodename)",
    "look_around": "[escaped(n) for n in os.listdir('/') if n in ('proc', 'sys', 'tmp', 'home', 'var', 'work', 'mnt', 'opt', 'srv')]",
}


@dataclass
class Outside:
    """What an attempt would reach for, and whether it did."""

    folder: Path
    victim: subprocess.Popen[bytes]
    listeners: list[socket.socket] = field(default_factory=list)

    @property
    def given(self) -> bytes:
        tcp, _, abstract, unix = self.listeners
        facts = {"secret": str(self.folder / "secret"), "verdict": str(self.folder / "verdict.json"), "victim": self.victim.pid}
        names = {"port": tcp.getsockname()[1], "abstract": abstract.getsockname()[1:].decode(), "unix": unix.getsockname()}
        return json.dumps(facts | names).encode()

    @property
    def touched(self) -> list[str]:
        """What was changed or reached."""
        found = []
        if (self.folder / "verdict.json").read_text() != "failed":
            found.append("verdict")
        if self.victim.poll() is not None:
            found.append("victim")
        for listener in self.listeners:
            try:
                listener.setblocking(False)
                listener.recv(10) if listener.type == socket.SOCK_DGRAM else listener.accept()
                found.append(str(listener.getsockname()))
            except BlockingIOError:
                pass
        return found


@pytest.fixture
def outside() -> Iterator[Outside]:
    folder = Path(tempfile.mkdtemp(prefix="tallystick-outside-"))
    folder.chmod(0o777)
    for name, content in (("secret", "secret"), ("verdict.json", "failed")):
        (folder / name).write_text(content)
        (folder / name).chmod(0o666)
    tcp, udp = socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
    tcp.bind(("127.0.0.1", 0))
    udp.bind(("127.0.0.1", tcp.getsockname()[1]))
    abstract, unix = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0tallystick-{folder.name}")
    unix.bind(str(folder / "socket"))
    (folder / "socket").chmod(0o777)
    for listener in (tcp, abstract, unix):
        listener.listen()
    place = Outside(folder, subprocess.Popen(["sleep", "60"]), [tcp, udp, abstract, unix])
    yield place
    place.victim.kill()
    place.victim.wait()
    for listener in place.listeners:
        listener.close()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    os.environ["TALLY_ESCAPE_SECRET"] = "secret"
    yield Sandbox("hostile")
    del os.environ["TALLY_ESCAPE_SECRET"]


def control(source: str, given: bytes, cwd: Path) -> bytes:
    """What an attempt says without a sandbox, with the same environment and a descriptor that it inherits."""
    with tempfile.TemporaryFile() as inherited:
        run = subprocess.run(
            [str(interpreter()), "-S", "-c", PRELUDE + source], input=given, capture_output=True, timeout=60, cwd=cwd, check=False,
            pass_fds=(inherited.fileno(),),
        )  # fmt: skip
    return run.stdout


@pytest.mark.parametrize("name", [*ATTEMPTS, *AS_ROOT])
def test_no_attempt_succeeds_that_succeeds_without_the_sandbox(name: str, sandbox: Sandbox, outside: Outside) -> None:
    source = (ATTEMPTS | AS_ROOT)[name]
    report = sandbox.run(Program(source=PRELUDE + source), stdin=outside.given, limits=Limits(wall_s=30))
    assert b"ESCAPED" not in report.stdout, report
    assert report.ended == "exit" and outside.touched == [], report
    if name in ATTEMPTS or os.geteuid() == 0:
        assert b"ESCAPED" in control(source, outside.given, outside.folder), "the control must succeed, or the attempt shows nothing"


@pytest.mark.parametrize("name", NO_CONTROL)
def test_no_attempt_succeeds_that_would_do_harm_without_the_sandbox(name: str, sandbox: Sandbox, outside: Outside) -> None:
    report = sandbox.run(Program(source=PRELUDE + NO_CONTROL[name]), stdin=outside.given, limits=Limits(wall_s=30))
    assert b"ESCAPED" not in report.stdout, report
    assert report.ended == "exit" and outside.touched == [], report


def test_files_of_the_program_shadow_no_module_and_run_no_hook(sandbox: Sandbox, tmp_path: Path) -> None:
    hook = b"import os; os.write(1, b'ESCAPED')"
    files = dict.fromkeys(("json.py", "resource.py", "sitecustomize.py", "usercustomize.py", "encodings/__init__.py", "os.py"), hook)
    source = "import json, os, resource\nprint(json.dumps(sorted(os.listdir(os.environ['TASK']))))"
    report = sandbox.run(Program(source=source, files=files))
    assert report.ok and json.loads(report.stdout) == sorted({name.split("/")[0] for name in files} | {"main.py"})
    for name in ("json.py", "main.py"):
        (tmp_path / name).write_bytes(hook if name == "json.py" else b"import json")
    assert b"ESCAPED" in subprocess.run([sys.executable, tmp_path / "main.py"], capture_output=True, check=True).stdout


def test_every_refused_system_call_is_refused(sandbox: Sandbox) -> None:
    column = ARCHITECTURES[os.uname().machine][1]
    numbers = {name: numbers[column] for name, numbers in REFUSED.items()}
    source = (
        PRELUDE
        + """
def errno_of(number):
    ctypes.set_errno(0)
    libc.syscall(number, -1, -1, -1, -1, -1, -1)
    return ctypes.get_errno()
print(json.dumps({name: errno_of(number) for name, number in given.items()}))
"""
    )
    report = sandbox.run(Program(source=source), stdin=json.dumps(numbers).encode())
    assert json.loads(report.stdout) == dict.fromkeys(numbers, 1)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="32-bit calls are of x86")
def test_calls_of_another_architecture_end_the_program(sandbox: Sandbox) -> None:
    source = """
import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20 (getpid of i386); int 0x80; ret
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))())
"""
    report = sandbox.run(Program(source=source))
    assert (report.ended, report.exit_code, report.stdout) == ("signal", 128 + signal.SIGSYS, b"")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_same_holds_for_an_ordinary_user() -> None:
    hidden = [path for path in (Path(sys.prefix), interpreter().parents[1], Path(__file__).parents[3]) if path.is_relative_to(Path.home())]
    folders = sorted({parent for path in hidden for parent in path.parents if parent.is_relative_to(Path.home())})
    shown = [argument for path in folders for argument in ("--dir", str(path))]
    shown += [argument for path in hidden for argument in ("--ro-bind", str(path), str(path))]
    outer = [str(find_bwrap()[0]), "--dev-bind", "/", "/", "--perms", "0755", "--tmpfs", str(Path.home()), *shown]
    drop = "import os, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534); os.execv(sys.argv[1], sys.argv[1:])"
    python = [sys.executable, "-c", drop, sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    here = Path(__file__).parent
    run = subprocess.run(
        [*outer, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--", *python, str(here / "test_runtime_escapes.py"),
         str(here / "test_runtime_limits.py")],
        capture_output=True, timeout=300, check=False, cwd=here.parents[2],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONPATH": str(here.parents[2])},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout.decode()[-3000:] + run.stderr.decode()[-2000:]
    assert " passed" in run.stdout.decode()
