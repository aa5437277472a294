"""The user's cache of adapters that were built on first use, and what is looked at before one of them is loaded.

    ~/.cache/gapless/                                         this user's (or root's), for nobody else to write
      1f0c.../libgapless_torch-2.11.so                        by what it was made of; neither is a link
      1f0c.../libgapless_torch-2.11.so.sha256                 what was built there

What lies there is loaded into the user's programs, so what is not as gapless leaves it is refused, with the reason.
"""
from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import stat
from collections.abc import Iterator

from ._library import GaplessError


def folder() -> pathlib.Path:
    named = pathlib.Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else pathlib.Path.home() / ".cache") / "gapless"


def _check(path: pathlib.Path) -> None:
    """Raises GaplessError where others than this user and root could have put something else there."""
    try:
        facts = path.lstat()
    except OSError as error:
        raise GaplessError(f"{path}: {error.strerror}") from error
    cause = ""
    if stat.S_ISLNK(facts.st_mode):
        cause = "is a link"
    elif facts.st_uid not in (os.geteuid(), 0):
        cause = f"belongs to user {facts.st_uid}"
    elif facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        cause = f"can be written by others (mode {stat.S_IMODE(facts.st_mode):04o})"
    if cause:
        raise GaplessError(f"{path} {cause}, so nothing there is used: remove {folder()}, or set XDG_CACHE_HOME to "
                           "a folder of your own")


def _digest_of(adapter: pathlib.Path) -> str:
    return hashlib.sha256(adapter.read_bytes()).hexdigest()


def _digest_file(adapter: pathlib.Path) -> pathlib.Path:
    return adapter.with_name(adapter.name + ".sha256")


def keep(built: pathlib.Path, adapter: pathlib.Path) -> None:
    """Moves what was built to where it is looked for, and records what it was."""
    built.chmod(0o644)
    noted = built.with_name("digest")
    noted.write_text(_digest_of(built) + "\n", encoding="ascii")
    noted.chmod(0o644)
    os.replace(noted, _digest_file(adapter))
    os.replace(built, adapter)  # last, and whole: what is there has its digest beside it


def checked(adapter: pathlib.Path) -> pathlib.Path | None:
    """The adapter, where it is there and may be loaded; None where there is none. Raises GaplessError where it
    may not."""
    if not os.path.lexists(adapter):
        return None
    for path in (folder(), adapter.parent, adapter, _digest_file(adapter)):
        _check(path)
    try:
        if _digest_file(adapter).read_text(encoding="ascii").strip() == _digest_of(adapter):
            return adapter
    except (OSError, ValueError) as error:
        raise GaplessError(f"{adapter} cannot be compared with its digest: {error}") from error
    raise GaplessError(f"{adapter} is not what was built there (its digest differs): remove {adapter.parent}")


@contextlib.contextmanager
def alone_in(key: str) -> Iterator[pathlib.Path]:
    """A folder of the cache, which is made where it is not there. Waits until no other process is in here: ranks
    that begin together build one adapter. Raises GaplessError."""
    try:
        folder().parent.mkdir(parents=True, exist_ok=True)
        for path in (folder(), folder() / key):
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
            _check(path)
        with open(os.open(folder() / "lock", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600), "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder() / key
    except OSError as error:
        raise GaplessError(f"the adapter cannot be kept in {folder()}: {error}") from error
