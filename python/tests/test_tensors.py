"""Tests of the tensors of messages, for libraries that speak DLPack."""

import ctypes
import sys

import numpy as np
import pyarrow as pa
import pytest

from made import GRID, event, fused, observation
from robocache import MessageError, MessageTensor, open_tensor


def test_a_tensor_has_the_shape_of_the_message():
    with open_tensor(fused()) as tensor:
        assert (tensor.shape, tensor.dtype) == ((2, 3), "float32")
        values = tensor.numpy()
    assert values.tolist() == [[1, 2, 3], [4, 5, 6]] and values.flags.writeable
    with pytest.raises(ValueError, match="closed"):
        tensor.numpy()


def test_a_tensor_is_a_copy_unless_asked_not_to():
    sent = fused()
    held = sent["value"].to_numpy()
    assert not np.shares_memory(open_tensor(sent).numpy(), held)
    assert np.shares_memory(open_tensor(sent, copy=False).numpy(), held)


def test_what_was_taken_outlives_the_tensor_and_the_message():
    taken = np.from_dlpack(open_tensor(fused(), copy=False))
    assert taken.tolist() == [[1, 2, 3], [4, 5, 6]] and not taken.flags.writeable


def test_a_column_of_a_payload_that_has_several():
    coords = pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, 4, 5, 6], pa.int32()), 3)
    coo = pa.StructArray.from_arrays([coords], names=["coords"])
    assert open_tensor(event(coo, GRID), "coords").numpy().tolist() == [[1, 2, 3], [4, 5, 6]]
    sent = observation({"grids": np.arange(4, dtype=np.uint8)}, grids_ms=(90,), said={"shape": [1, 2, 2]})
    assert open_tensor(sent).shape == (2, 3) and open_tensor(sent, "grids").shape == (1, 2, 2)
    with pytest.raises(MessageError, match="has no 'images'"):
        open_tensor(sent, "images")
    with pytest.raises(MessageError, match="flat array, expected a struct with a column 'grids'"):
        open_tensor(fused(), "grids")


def test_bits_of_a_grid_stay_bytes():
    assert open_tensor(event(pa.array([1, 2, 3], pa.uint8()), {**GRID, "shape": [2, 3, 4]})).shape == (3,)


def test_shapes_and_types_that_contradict_the_values_are_named():
    with pytest.raises(MessageError, match=r"shape is \[4, 2\] for 6 values"):
        open_tensor(event(pa.array(np.zeros(6)), {"shape": [4, 2]}))
    with pytest.raises(MessageError, match="dtype is float32 for values of float64"):
        open_tensor(event(pa.array(np.zeros(6)), {"dtype": "float32"}))
    with pytest.raises(MessageError, match="metadata has no 'ring'"):
        open_tensor(event(pa.array([], pa.uint8()), {"residence": "shared", "shape": [2, 3]}))


class Capsule(ctypes.Structure):
    """The parts of DLPack's DLManagedTensorVersioned up to the type, by its header, dlpack.h v1.0."""

    _fields_ = [
        *(
            ("major", ctypes.c_uint32),
            ("minor", ctypes.c_uint32),
            ("context", ctypes.c_void_p),
            ("deleter", ctypes.c_void_p),
        ),
        *(
            ("flags", ctypes.c_uint64),
            ("data", ctypes.c_void_p),
            ("device", ctypes.c_int32 * 2),
            ("ndim", ctypes.c_int32),
        ),
        *(("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)),
    ]


@pytest.mark.parametrize(("dtype", "code", "bits"), [("bfloat16", 4, 16), ("uint16", 1, 16), ("float32", 2, 32)])
def test_the_type_in_the_capsule(dtype, code, bits):
    values = np.zeros((2, 3), "uint16" if dtype == "bfloat16" else dtype)
    tensor = MessageTensor(values, dtype)
    capsule = tensor.__dlpack__(max_version=(1, 0))
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    said = Capsule.from_address(get(capsule, b"dltensor_versioned"))
    assert (said.code, said.bits, said.lanes, said.ndim, said.data) == (code, bits, 1, 2, values.ctypes.data)
    assert tensor.__dlpack_device__() == (1, 0)


def test_an_old_consumer_gets_an_old_capsule():
    assert '"dltensor"' in repr(MessageTensor(np.zeros(3, np.uint16), "bfloat16").__dlpack__())


def test_a_library_that_the_program_did_not_import_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ImportError, match="`import torch` first"):
        open_tensor(fused()).torch()
    with pytest.raises(ImportError, match="`import cupy` first"):
        open_tensor(fused()).cupy()


@pytest.mark.parametrize("copy", [True, False])
def test_torch_takes_every_type_on_the_same_memory(copy):
    torch = pytest.importorskip("torch", reason="torch is not installed: its tensors are not tried")
    got = open_tensor(fused(), copy=copy).torch()
    assert got.dtype == torch.float32 and got.tolist() == [[1, 2, 3], [4, 5, 6]]
    sent = fused([0x3F80, 0x3FC0, 0x4000, 0xC040, 0x3F80, 0x4000], np.uint16)
    sent["metadata"]["dtype"] = "bfloat16"
    got = open_tensor(sent, copy=copy).torch()
    assert got.dtype == torch.bfloat16 and got.tolist() == [[1, 1.5, 2], [-3, 1, 2]]
    tensor = open_tensor(sent, copy=copy)
    assert tensor.torch().data_ptr() == tensor.torch().data_ptr()
