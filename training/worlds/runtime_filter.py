"""The seccomp filter of sandboxed code: which system calls are refused, as a BPF program. Pure."""

import errno
import platform
import struct
from collections.abc import Iterable

from ledger.errors import SandboxUnavailable

ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""Machine to its AUDIT_ARCH value and its column in `REFUSED`."""
REFUSED = {
    # Other processes, and memory that no RLIMIT_AS counts.
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196),
    "shmctl": (31, 195), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    # The network; a pair of connected sockets (socketpair) stays.
    "socket": (41, 198),
    # Namespaces and mounts.
    "unshare": (272, 97), "setns": (308, 268), "listmount": (458, 458), "statmount": (457, 457),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # Kernel interfaces with a long record of faults, which no world needs.
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "fanotify_init": (300, 262), "personality": (135, 92), "lookup_dcookie": (212, 18),
    # The machine's own settings.
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "syslog": (103, 116),
    "acct": (163, 89), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "sethostname": (170, 161), "setdomainname": (171, 162), "vhangup": (153, 58),
}  # fmt: skip
"""System call to its numbers on x86_64 and aarch64; each answers EPERM."""
_X86_ONLY = {"modify_ldt": 154, "iopl": 172, "ioperm": 173, "uselib": 134}
_CLONE, _CLONE3, _FORKS = (56, 220), 435, (57, 58)
_CLONE_THREAD = 0x00010000
_CLONE_NAMESPACES = 0x7E020000
_X32_BIT = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_NR, _ARCH, _ARG0 = 0, 4, 16
Instruction = tuple[int, int, int, int]


def _refuse(error: int) -> Instruction:
    return (_RETURN, 0, 0, 0x00050000 | error)


def seccomp_filter(machine: str | None = None, *, fork: bool, threads: bool = True) -> bytes:
    """The filter as the array of `struct sock_filter` that seccomp(2) and `bwrap --seccomp` take.

    Args:
        machine: x86_64 or aarch64; None for this machine.
        fork: whether further processes may be started.
        threads: whether threads may.

    Raises:
        SandboxUnavailable: a machine whose call numbers are not known here.
    """
    machine = machine or platform.machine()
    if machine not in ARCHITECTURES:
        raise SandboxUnavailable(f"no system call filter for machine {machine!r}; known are {', '.join(ARCHITECTURES)}")
    architecture, column = ARCHITECTURES[machine]
    # Calls of another architecture (32-bit code) have other numbers, so they end the process.
    program: list[Instruction] = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NR)]
    if machine == "x86_64":
        program += [(_AT_LEAST, 0, 1, _X32_BIT), _refuse(errno.EPERM), *_each(_X86_ONLY.values(), errno.EPERM)]
        if not fork:
            program += _each(_FORKS, errno.EAGAIN)
    program += _each((numbers[column] for numbers in REFUSED.values()), errno.EPERM)
    # The flags of clone3 lie behind a pointer that no filter can read; the C library falls back to clone.
    program += _each((_CLONE3,), errno.ENOSYS)
    clone = [(_LOAD, 0, 0, _ARG0), (_ANY_BIT, 0, 1, _CLONE_NAMESPACES), _refuse(errno.EPERM)]
    if not fork:
        clone += [(_ANY_BIT, 1, 0, _CLONE_THREAD), _refuse(errno.EAGAIN)]
    if not threads:
        clone += [(_ANY_BIT, 0, 1, _CLONE_THREAD), _refuse(errno.EAGAIN)]
    program += [(_EQUAL, 0, len(clone), _CLONE[column]), *clone, (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _each(numbers: Iterable[int], error: int) -> list[Instruction]:
    return [instruction for number in numbers for instruction in ((_EQUAL, 0, 1, number), _refuse(error))]
