"""First program inside a sandbox: sets limits, gives up privileges and becomes the code that was asked for. Standard library only.

It runs before any foreign code does and shares its process with it afterwards, so it holds nothing worth taking. Its arguments:
user id (or `-`), status descriptor, limits as `CPU=10,AS=...`, a Python file that confines this process further (or `-`), and the
path of a Python program or, after `--`, a command. No module beyond the three below is imported: each would cost every start.
"""

import os
import resource
import sys

MEMORY_EXIT = 251
"""Exit code of a program that ended with MemoryError."""


def prepare(uid: str, status: str, limits: str, further: str) -> None:
    """Limits, identity and confinement, then the word that they are in force."""
    if uid != "-":
        number = int(uid)
        os.setgroups([])
        os.setresgid(number, number, number)
        os.setresuid(number, number, number)
    for limit in limits.split(","):
        name, _, text = limit.partition("=")
        value = int(text)
        # A process that reaches its soft limit of CPU time is told; at the hard one it is killed.
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value + 1 if name == "CPU" else value))
    if further != "-":
        execute(further, {"__name__": "confine"})
    # Whoever started this may have died before the kernel was told to end it with them: then nobody reads, and this ends here.
    os.write(int(status), b"ready")
    os.closerange(3, 1 << 20)


def execute(path: str, namespace: dict) -> None:  # type: ignore[type-arg]
    """Runs a Python file in a namespace."""
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec")
    exec(code, namespace)


def run(path: str) -> None:
    """Runs a Python program as the main module of this process."""
    sys.argv = [path]
    sys.path.append(os.path.dirname(path))
    module = type(sys)("__main__")
    module.__file__ = path
    sys.modules["__main__"] = module
    try:
        execute(path, module.__dict__)
    except MemoryError:
        os.write(2, b"MemoryError\n")
        os._exit(MEMORY_EXIT)


if __name__ == "__main__":
    prepare(*sys.argv[1:5])
    if sys.argv[5] == "--":
        os.execvp(sys.argv[6], sys.argv[6:])
    run(sys.argv[5])
