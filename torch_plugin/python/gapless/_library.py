"""Finding the adapter for the torch that is loaded, and calling it."""
from __future__ import annotations

import ctypes
import json
import os
import pathlib
import sys
from typing import Any, NoReturn

OUT_OF_MEMORY = 1
REFUSED, WRONG_OPTIONS = 2, 3  # of gapless_torch_install
MESSAGE_BYTES = 4096


SUPPORTED = (11, 15)  # torch 2.11 to 2.15


class GaplessError(RuntimeError):
    """gapless cannot do what was asked; nothing changed."""


class OptionError(GaplessError):
    """An option cannot be understood; nothing changed."""


def package_folders() -> list[pathlib.Path]:
    """Where the package's files are: the folder of this one and, where it was installed editable, also the one
    that has what was compiled."""
    package = sys.modules[__package__]
    found = [pathlib.Path(__file__).resolve().parent]
    for entry in package.__path__:
        if (folder := pathlib.Path(entry).resolve()) not in found:
            found.append(folder)
    return found


def source_tree() -> pathlib.Path | None:
    """The tree that this file lies in; None where it was installed."""
    here = pathlib.Path(__file__).resolve()
    tree = here.parents[3]
    return tree if tree / "torch_plugin" / "python" / "gapless" / here.name == here else None


def library_folders() -> list[pathlib.Path]:
    """Where libraries may be: GAPLESS_LIBRARY_PATH, beside this file, and a build tree around it."""
    named = [pathlib.Path(p) for p in os.environ.get("GAPLESS_LIBRARY_PATH", "").split(":") if p]
    tree = source_tree()
    return [*named, *(folder / "lib" for folder in package_folders()),
            *([tree / "build" / "release" / "lib"] if tree else [])]


def library(name: str) -> pathlib.Path:
    """Raises GaplessError where it is in none of the folders."""
    for folder in library_folders():
        if (path := folder / name).exists():
            return path
    raise GaplessError(f"{name} is in none of {', '.join(map(str, library_folders()))}")


def check_supported(version: str) -> None:
    """Of torch, "2.11"; raises GaplessError that says which versions are."""
    first, last = SUPPORTED
    if version not in [f"2.{minor}" for minor in range(first, last + 1)]:
        raise GaplessError(f"torch {version} is not supported: gapless is for torch 2.{first} to 2.{last}")


def import_torch() -> Any:
    """Raises GaplessError where there is none."""
    try:
        import torch
    except ImportError as error:
        raise GaplessError(f"torch cannot be imported: {error}") from error
    return torch


def torch_version() -> str:
    """"2.11" of the torch that is imported; raises GaplessError where it has no CUDA."""
    torch = import_torch()
    if torch.version.cuda is None:
        raise GaplessError(f"torch {torch.__version__} was built without CUDA")
    return ".".join(torch.__version__.split(".")[:2])


def adapter_for_loaded_torch() -> Library:
    version = torch_version()
    name = f"libgapless_torch-{version}.so"
    for folder in library_folders():
        if (folder / name).exists():
            return Library(folder / name)
    check_supported(version)
    from . import _build
    return Library(_build.adapter(once=True))


def _last_error(loaded: ctypes.CDLL) -> str:
    loaded.gapless_last_error.restype = ctypes.c_char_p
    return bytes(loaded.gapless_last_error() or b"").decode(errors="replace")


def _text(loaded: ctypes.CDLL, function: str, *arguments: Any) -> bytes:
    """What a function of gapless.h writes to a buffer; empty where it fails."""
    call = getattr(loaded, function)
    size = ctypes.c_size_t(0)
    call(*arguments, None, ctypes.byref(size))
    while size.value:
        room = size.value + (1 << 16)  # it may grow between two calls
        buffer, size = ctypes.create_string_buffer(room), ctypes.c_size_t(room)
        if call(*arguments, buffer, ctypes.byref(size)) == 0:
            return buffer.raw[:size.value]
        if size.value <= room:
            break
    return b""


def config() -> dict[str, dict[str, str]]:
    """The options as libgapless.so reads them; needs no torch. Raises OptionError where GAPLESS_CONF cannot be
    understood."""
    path = library("libgapless.so")
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise GaplessError(f"{path} cannot be loaded: {error}") from error
    if text := _text(loaded, "gapless_config"):
        return dict(json.loads(text))
    raise OptionError(_last_error(loaded))


class Library:
    """libgapless_torch-VERSION.so."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        try:
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise GaplessError(f"{path} cannot be loaded: {error}") from error
        self._library.gapless_torch_allocator.restype = ctypes.c_void_p
        self._library.gapless_torch_name_call_sites.argtypes = [ctypes.c_void_p]

    def install(self) -> tuple[bool, str]:
        """Whether it is new, and a note; raises GaplessError."""
        message = ctypes.create_string_buffer(MESSAGE_BYTES)
        result = self._library.gapless_torch_install(message, ctypes.c_size_t(MESSAGE_BYTES))
        text = message.value.decode(errors="replace")
        if result == WRONG_OPTIONS:
            raise OptionError(text)
        if result == REFUSED:
            raise GaplessError(text)
        return result == 0, text

    def name_call_sites(self) -> None:
        """Out-of-memory messages say where live blocks were allocated, while that is recorded."""
        from . import _call_sites
        _call_sites.tell(self._library)

    def _handle(self) -> ctypes.c_void_p:
        handle = self._library.gapless_torch_allocator()
        if handle is None:
            import torch
            torch.cuda.init()
            handle = self._library.gapless_torch_allocator()
        if handle is None:
            raise GaplessError("gapless is not installed in this process: gapless.install()")
        return ctypes.c_void_p(handle)

    def _check(self, status: int) -> None:
        if status == 0:
            return
        text = _last_error(self._library)
        if status == OUT_OF_MEMORY:
            import torch
            raise torch.OutOfMemoryError(f"gapless: {text}")
        raise GaplessError(text or f"status {status}")

    def describe(self) -> dict[str, Any]:
        return dict(json.loads(_text(self._library, "gapless_describe", self._handle()) or self._fail()))

    def explain(self, device: int) -> dict[str, Any] | None:
        text = _text(self._library, "gapless_explain", self._handle(), ctypes.c_int32(device))
        return dict(json.loads(text)) if text else None

    def _fail(self) -> NoReturn:
        raise GaplessError(_last_error(self._library))

    def check(self, device: int) -> None:
        self._check(self._library.gapless_check(self._handle(), ctypes.c_int32(device)))

    def record(self, path: str, stacks: bool) -> None:
        self._check(self._library.gapless_record(self._handle(), os.fsencode(path), ctypes.c_int(stacks)))

    def record_end(self) -> None:
        self._check(self._library.gapless_record_end(self._handle()))

    def trim(self, device: int, keep_bytes: int) -> None:
        self._check(self._library.gapless_trim(self._handle(), ctypes.c_int32(device), ctypes.c_size_t(keep_bytes)))

    def sleep(self, device: int, pool: tuple[int, int], save: bool) -> None:
        self._check(self._library.gapless_sleep(self._handle(), ctypes.c_int32(device), ctypes.c_uint64(pool[0]),
                                                ctypes.c_uint64(pool[1]), ctypes.c_int(save)))

    def wake(self, device: int, pool: tuple[int, int]) -> None:
        self._check(self._library.gapless_wake(self._handle(), ctypes.c_int32(device), ctypes.c_uint64(pool[0]),
                                               ctypes.c_uint64(pool[1])))


