"""Confines the process that runs it by Landlock and seccomp alone, where no namespace can be had. Standard library only.

What Landlock hides can still be seen to exist, and there is no process namespace, so this is less than `bwrap` gives.
Source: Linux, Documentation/userspace-api/landlock.rst (ABI 1 to 6) and seccomp_filter.rst.
"""

import ctypes
import os
import signal

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_READ = 0b1 | 0b100 | 0b1000
"""Execute, read a file, read a folder."""
_WRITE = 0b10 | 0b1111111110000
"""Write a file; remove and make entries of every kind."""
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_FOLDER_ONLY = 0b1000 | 0b1111111110000 | _REFER
_PATH_BENEATH = 1
_SET_PDEATHSIG, _SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 1, 38, 22, 2


class _Ruleset(ctypes.Structure):
    _fields_ = (("access_fs", ctypes.c_uint64), ("access_net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("fd", ctypes.c_int32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def confine(readable: list[str], writable: list[str], filter_program: bytes) -> None:
    """Hides all files but these, scopes signals and abstract sockets to this process, and loads the filter; never undone."""
    _checked(_libc.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "parent-death signal")
    _checked(_libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    abi = _checked(_libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1)), "Landlock")
    later = (_REFER if abi >= 2 else 0) | (_TRUNCATE if abi >= 3 else 0) | (_IOCTL if abi >= 5 else 0)
    handled = _READ | _WRITE | later
    attributes = _Ruleset(handled, 0b11 if abi >= 4 else 0, 0b11 if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _checked(_libc.syscall(_CREATE, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0)), "Landlock ruleset")
    for paths, access in ((readable, _READ), (writable, handled)):
        for path in paths:
            _allow(ruleset, path, access)
    _checked(_libc.syscall(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0)), "Landlock restriction")
    os.close(ruleset)
    program = _Program(len(filter_program) // 8, filter_program)
    _checked(_libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0), "seccomp")


def _allow(ruleset: int, path: str, access: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = _Beneath(access if os.path.isdir(path) else access & ~_FOLDER_ONLY, fd)
        added = _libc.syscall(_ADD, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint32(0))
        _checked(added, f"Landlock rule for {path}")
    finally:
        os.close(fd)
