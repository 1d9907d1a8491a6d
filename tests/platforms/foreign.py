"""Take from this Python what macOS or Windows does not have. Run in a process of its own, before anything is imported:

    python -m tests.platforms.foreign win32 'import sys; print(sys.platform)' ARGUMENT...

What the standard library and other packages have taken at their import, they keep: they know the systems by themselves.
Paths stay those of this system.
"""

from __future__ import annotations

import builtins
import errno
import os
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

KNOWING = (
    *("asyncio", "click", "click.shell_completion", "ctypes", "email", "http.server", "mmap", "multiprocessing"),
    *("multiprocessing.connection", "shutil", "tempfile", "uuid", "zipfile", "google_crc32c", "google.protobuf"),
    *("markdown_it", "msgspec", "numpy", "prometheus_client", "prometheus_client.openmetrics.exposition", "rich"),
    *("rich.console", "rich.progress", "rich.table", "werkzeug.serving", "werkzeug.test", "werkzeug.wrappers", "yaml"),
)
"""Imported first."""

BOTH = {
    os: "sched_getaffinity sched_setaffinity memfd_create posix_fadvise posix_fallocate pipe2 eventfd fdatasync "
    "listxattr getxattr setxattr removexattr getrandom copy_file_range O_TMPFILE O_PATH O_DIRECT pidfd_open P_PIDFD "
    "splice waitid",
    time: "CLOCK_BOOTTIME pthread_getcpuclockid",
    select: "epoll",
    signal: "sigtimedwait sigwaitinfo SIGRTMIN SIGRTMAX SIGPWR SIGPOLL SIGSTKFLT SIGCLD",
}
"""What neither has."""

WINDOWS = {
    os: "fork forkpty register_at_fork getuid geteuid getgid getegid getgroups getpgid getpgrp getsid setsid setuid "
    "setgid setpgid killpg uname statvfs fstatvfs pread preadv pwrite pwritev sysconf confstr fchmod fchown chown "
    "lchown mkfifo mknod openpty ttyname nice getpriority setpriority getloadavg wait wait3 wait4 WNOHANG WEXITED "
    "WNOWAIT P_ALL P_PID WIFEXITED WIFSIGNALED WTERMSIG WEXITSTATUS WIFSTOPPED O_CLOEXEC O_NOFOLLOW O_DIRECTORY "
    "O_NONBLOCK O_NOCTTY O_SYNC O_DSYNC O_NDELAY O_ASYNC sync lockf posix_spawn fchdir chroot ctermid readv writev "
    "sendfile",
    time: "clock_gettime clock_settime clock_getres CLOCK_MONOTONIC CLOCK_REALTIME CLOCK_PROCESS_CPUTIME_ID tzset",
    select: "poll",
    signal: "SIGKILL SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGALRM SIGPIPE SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU "
    "SIGBUS SIGXCPU SIGXFSZ SIGTRAP SIGSYS SIGURG SIGVTALRM SIGPROF SIGWINCH SIGIO pthread_kill pthread_sigmask "
    "sigwait sigpending setitimer getitimer alarm pause siginterrupt SIG_BLOCK SIG_UNBLOCK SIG_SETMASK ITIMER_REAL",
    socket: "AF_UNIX socketpair sendmsg",
}
"""What Windows lacks besides."""

WINDOWS_MODULES = ("fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty")
"""Modules that Windows does not have."""

O_BINARY = 0x8000
"""Without this flag Windows changes line ends, and reads a byte 26 as the end."""


def become(system: str) -> None:
    """Take away what a system does not have.

    Args:
        system: as ``sys.platform`` names it.
    """
    for name in KNOWING:
        import_module(name)
    for module, names in BOTH.items():
        _delete(module, names)
    _hide_proc()
    if system == "win32":
        _know_the_disk_by_shutil()
        for module, names in WINDOWS.items():
            _delete(module, names)
        for name in WINDOWS_MODULES:
            sys.modules[name] = None  # type: ignore[assignment]
        _open_as_windows_does()
        signal.SIGBREAK = 21  # type: ignore[attr-defined]
        subprocess.CREATE_NEW_PROCESS_GROUP = 0x200  # type: ignore[attr-defined]
    else:
        _delete(sys.modules.get("resource") or import_module("resource"), "RUSAGE_THREAD prlimit")
    selectors.DefaultSelector = selectors.SelectSelector  # type: ignore[misc,assignment]
    sys.platform = system


def _delete(module: Any, names: str) -> None:
    for name in names.split():
        vars(module).pop(name, None)


def _know_the_disk_by_shutil() -> None:
    ask, usage = os.statvfs, type(shutil.disk_usage("/"))

    def disk_usage(path: str) -> Any:
        found = ask(path)
        return usage(found.f_blocks * found.f_frsize, 0, found.f_bavail * found.f_frsize)

    shutil.disk_usage = disk_usage  # type: ignore[assignment]


def _hide_proc() -> None:
    """Neither has ``/proc`` or ``/dev/shm``."""

    def without(call: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(path: Any = ".", *arguments: Any, **more: Any) -> Any:
            if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(("/proc", "/dev/shm")):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
            return call(path, *arguments, **more)

        return refuse

    for name in ("open", "listdir", "readlink", "scandir", "stat", "lstat", "mkdir"):
        setattr(os, name, without(getattr(os, name)))
    builtins.open = without(builtins.open)


def _open_as_windows_does() -> None:
    """Windows opens no directory, nothing relative to one, and files as text unless it is told otherwise."""
    call = os.open

    def open_file(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None:
            raise NotImplementedError("dir_fd unavailable on this platform")
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        if not flags & O_BINARY:
            raise AssertionError(f"{path} is opened as text")
        return call(path, flags & ~O_BINARY, mode)

    tempfile.gettempdir()
    os.O_BINARY = O_BINARY  # type: ignore[attr-defined]
    tempfile._bin_openflags |= O_BINARY  # type: ignore[attr-defined]
    os.open = open_file
    os.supports_dir_fd = set()
    os.supports_fd = {os.stat, os.truncate}
    os.supports_follow_symlinks = {os.stat}

    def kill(pid: int, signum: int) -> None:
        raise AssertionError(f"os.kill({pid}, {signum}): Windows ends a process by that, or sends Ctrl-C")

    os.kill = kill


if __name__ == "__main__":
    become(sys.argv[1])
    program = sys.argv[2]
    del sys.argv[1:3]
    exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
