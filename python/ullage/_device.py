# SPDX-License-Identifier: Apache-2.0
"""Arrays of any package on a device, by the DLPack protocol.

    __dlpack_device__()          -> (type, number)
    __dlpack__(stream=STREAM)    -> a capsule: a struct DLManagedTensor; work that is enqueued in
                                    STREAM later runs after all that made the array

The capsule is not consumed: its maker owns the array while a model reads or writes it, and the
capsule then goes back to the maker."""

from __future__ import annotations

import ctypes

ON_DEVICE = (2, 13)  # DLDeviceType: kDLCUDA, kDLCUDAManaged

_NAMES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
# (code, bits) of a DLDataType for ONNX's element types. Elements of 2 and 4 bits take a byte each.
_TYPES = {
    1: (2, 32),
    2: (1, 8),
    3: (0, 8),
    4: (1, 16),
    5: (0, 16),
    6: (0, 32),
    7: (0, 64),
    9: (6, 8),
    10: (2, 16),
    11: (2, 64),
    12: (1, 32),
    13: (1, 64),
    16: (4, 16),
    17: (10, 8),
    18: (11, 8),
    19: (12, 8),
    20: (13, 8),
    21: (1, 8),
    22: (0, 8),
    23: (1, 8),
    24: (14, 8),
    25: (1, 8),
    26: (0, 8),
    27: (1, 8),
    28: (1, 8),
}
_AS_BITS = (9, 16, 17, 18, 19, 20, 24)  # unsigned integers of the same size are accepted too


class _Tensor(ctypes.Structure):
    """struct DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def is_array(array) -> bool:
    """Whether the array is on a device, by its own account."""
    where = getattr(array, "__dlpack_device__", None)
    return where is not None and where()[0] in ON_DEVICE


def read(capsule) -> _Tensor:
    """The tensor of a capsule, which must stay alive while the tensor is used."""
    return _Tensor.from_address(_get_pointer(capsule, b"dltensor"))


def is_contiguous(tensor: _Tensor) -> bool:
    """Row-major and dense. Strides of dimensions of one element do not matter."""
    if not tensor.strides:
        return True
    shape = tensor.shape[: tensor.ndim]
    count = 1
    for size, stride in zip(reversed(shape), reversed(tensor.strides[: tensor.ndim])):
        if size != 1 and stride != count and 0 not in shape:
            return False
        count *= size
    return True


def place(kind: str, wanted, array, stream) -> tuple:
    """The address of an array's elements, and an object that must stay alive while they are used.
    Work that made the array runs before all that is enqueued in `stream` later."""
    capsule = array.__dlpack__(stream=stream)
    tensor = read(capsule)
    what = f"{kind} {wanted.name!r}"
    given = (tensor.code, tensor.bits)
    allowed = (_TYPES[wanted.storage], (1, 8 * wanted.dtype.itemsize))
    if given not in allowed[: 2 if wanted.storage in _AS_BITS else 1] or tensor.lanes != 1:
        name = _NAMES.get(tensor.code, f"DLPack's type {tensor.code} of bits ") + str(tensor.bits)
        raise TypeError(f"{what}: expected {wanted.dtype}, not {name}")
    shape = tuple(tensor.shape[: tensor.ndim])
    if shape != wanted.shape:
        raise ValueError(
            f"{what}: expected shape {wanted.shape}, not {shape}; shapes are fixed when a model is "
            "compiled"
        )
    if not is_contiguous(tensor):
        raise TypeError(f"{what}: expected a C-contiguous array; a copy of it is one")
    return (tensor.data or 0) + tensor.byte_offset, capsule
