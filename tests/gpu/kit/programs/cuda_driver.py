"""The CUDA driver's own functions, by ctypes: what the kit asks of it beside torch."""
import ctypes

MIB = 1 << 20


class DriverError(RuntimeError):
    pass


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _AllocationProp(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", _Location),
                ("win32", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]


class _AccessDesc(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


class Driver:
    """libcuda.so.1. Every call raises DriverError, with the error's name, where it does not succeed."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)

    def call(self, name: str, *arguments) -> None:
        error = getattr(self._library, name)(*arguments)
        if error:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(error, ctypes.byref(text))
            raise DriverError(f"{name}: {(text.value or b'').decode() or error}")

    def _number(self, kind, name: str, *arguments) -> int:
        value = kind()
        self.call(name, ctypes.byref(value), *arguments)
        return value.value

    # --- devices

    def version(self) -> int:
        return self._number(ctypes.c_int, "cuDriverGetVersion")

    def devices(self) -> int:
        return self._number(ctypes.c_int, "cuDeviceGetCount")

    def name(self, device: int = 0) -> str:
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, 256, device)
        return text.value.decode()

    def total_bytes(self, device: int = 0) -> int:
        return self._number(ctypes.c_size_t, "cuDeviceTotalMem_v2", device)

    def attribute(self, number: int, device: int = 0) -> "int | None":
        try:
            return self._number(ctypes.c_int, "cuDeviceGetAttribute", number, device)
        except DriverError:
            return None

    def use(self, device: int = 0) -> None:
        """The device's primary context, which torch uses too, becomes this thread's."""
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def memory(self) -> "tuple[int, int]":
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    # --- virtual memory management

    @staticmethod
    def _prop(device: int) -> _AllocationProp:
        return _AllocationProp(type=1, location=_Location(1, device))  # pinned, on the device

    def granularity(self, recommended: bool, device: int = 0) -> int:
        return self._number(ctypes.c_size_t, "cuMemGetAllocationGranularity", ctypes.byref(self._prop(device)),
                            int(recommended))

    def create(self, count: int, device: int = 0) -> int:
        return self._number(ctypes.c_uint64, "cuMemCreate", ctypes.c_size_t(count), ctypes.byref(self._prop(device)),
                            ctypes.c_uint64(0))

    def release(self, handle: int) -> None:
        self.call("cuMemRelease", ctypes.c_uint64(handle))

    def reserve(self, count: int) -> int:
        return self._number(ctypes.c_uint64, "cuMemAddressReserve", ctypes.c_size_t(count), ctypes.c_size_t(0),
                            ctypes.c_uint64(0), ctypes.c_uint64(0))

    def free(self, address: int, count: int) -> None:
        self.call("cuMemAddressFree", ctypes.c_uint64(address), ctypes.c_size_t(count))

    def map(self, address: int, count: int, handle: int) -> None:
        self.call("cuMemMap", ctypes.c_uint64(address), ctypes.c_size_t(count), ctypes.c_size_t(0),
                  ctypes.c_uint64(handle), ctypes.c_uint64(0))

    def access(self, address: int, count: int, device: int = 0) -> None:
        self.call("cuMemSetAccess", ctypes.c_uint64(address), ctypes.c_size_t(count),
                  ctypes.byref(_AccessDesc(_Location(1, device), 3)), ctypes.c_size_t(1))

    def unmap(self, address: int, count: int) -> None:
        self.call("cuMemUnmap", ctypes.c_uint64(address), ctypes.c_size_t(count))

    def mapped(self, handles: "list[int]", page: int = 2 * MIB) -> int:
        """An address where these lie side by side."""
        address = self.reserve(len(handles) * page)
        for i, handle in enumerate(handles):
            self.map(address + i * page, page, handle)
        self.access(address, len(handles) * page)
        return address
