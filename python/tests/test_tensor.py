"""Tests of the native Tensor: exports and imports by DLPack."""

import numpy as np
import pytest

import robocache as rc

DTYPES = ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]


class Old:
    """Array of a library that implements a DLPack older than 1.0."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, *, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("wrap", [lambda array: array, Old], ids=["1.0", "before"])
def test_an_array_passes_without_a_copy(dtype, wrap):
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    tensor = rc.Tensor.from_dlpack(wrap(array))
    assert (tensor.shape, tensor.dtype, tensor.device, tensor.nbytes) == ((2, 3, 4), dtype, "cpu", array.nbytes)
    back = np.from_dlpack(tensor)
    assert back.dtype == array.dtype and np.array_equal(back, array)
    assert back.__array_interface__["data"][0] == array.__array_interface__["data"][0]
    back[:] = 0
    assert not array.any()


def test_the_memory_lives_as_long_as_its_last_array():
    tensor = rc.Tensor.from_dlpack(np.arange(1000))
    back = np.from_dlpack(tensor)
    del tensor
    assert np.array_equal(back, np.arange(1000))


@pytest.mark.parametrize(
    "view",
    [
        np.arange(24).reshape(4, 6)[:, ::2],
        np.arange(24).reshape(4, 6)[::-1],
        np.arange(24).reshape(4, 6).T,
        np.broadcast_to(np.arange(3), (5, 3)),
        np.arange(120).reshape(2, 3, 4, 5)[:, 1:, :, :],
        np.arange(120).reshape(2, 3, 4, 5)[:, :, 1:3, ::-2],
        np.frombuffer(b"\0" + np.arange(3).tobytes(), dtype=np.int64, offset=1),
    ],
    ids=["columns", "backwards", "transposed", "broadcast", "runs", "gaps on two axes", "unaligned"],
)
def test_gaps_are_closed_on_the_host(view):
    back = np.from_dlpack(rc.Tensor.from_dlpack(view))
    assert np.array_equal(back, view) and back.flags["C_CONTIGUOUS"]


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1), (1, 5, 1)])
def test_shapes_pass(shape):
    array = np.ones(shape, np.float32)
    back = np.from_dlpack(rc.Tensor.from_dlpack(array))
    assert back.shape == shape and np.array_equal(back, array)


def test_read_only_memory_stays_so():
    array = np.arange(5)
    array.flags.writeable = False
    tensor = rc.Tensor.from_dlpack(array)
    assert not np.from_dlpack(tensor).flags.writeable
    assert np.from_dlpack(tensor, copy=True).flags.writeable
    with pytest.raises(BufferError, match="read-only"):
        tensor.__dlpack__()


def test_bits_are_what_numpy_takes_of_bfloat16():
    tensor = rc.Tensor.from_dlpack(np.array([1.0, 2.0], np.float16)).bits()
    assert tensor.dtype == "uint16" and np.from_dlpack(tensor).tolist() == [0x3C00, 0x4000]
    with pytest.raises(ValueError, match="float32, not of 16 bits"):
        rc.Tensor.from_dlpack(np.zeros(1, np.float32)).bits()


def test_what_a_consumer_may_ask_for():
    tensor = rc.Tensor.from_dlpack(np.arange(3))
    assert tensor.__dlpack_device__() == (1, 0)
    assert "dltensor_versioned" in repr(tensor.__dlpack__(max_version=(1, 3)))
    assert '"dltensor"' in repr(tensor.__dlpack__(max_version=(0, 8)))
    assert '"dltensor"' in repr(tensor.__dlpack__())
    with pytest.raises(BufferError, match="on cpu, and is not copied to another device"):
        tensor.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="stream 7 for memory of the host"):
        tensor.__dlpack__(stream=7)


@pytest.mark.parametrize(
    ("array", "error", "words"),
    [
        ([1, 2], TypeError, "`array` is a list"),
        (np.zeros(2, np.complex64), TypeError, "DLPack's type 5 with 64 bits"),
        (np.zeros(2, ">f4"), TypeError, "`array`, a numpy.ndarray: its dtype is >f4"),
        (np.array([None]), TypeError, "`array`, a numpy.ndarray: its dtype is object"),
    ],
)
def test_what_is_no_array_is_refused(array, error, words):
    with pytest.raises(error, match=words):
        rc.Tensor.from_dlpack(array)
