"""Compares what h5py reads from a checkpoint with what the format's own index says, byte for byte.

Reads the header and the index as docs/file_format.md describes them; nothing of Holdfast is used.
"""
import json
import struct
import sys

import h5py
import numpy as np

PLAIN = {
    "bool": "?", "uint8": "u1", "int8": "i1", "int16": "<i2", "int32": "<i4", "int64": "<i8", "float16": "<f2",
    "float32": "<f4", "float64": "<f8", "complex64": "<c8", "complex128": "<c16", "float8_e4m3fn": "u1",
    "float8_e5m2": "u1", "uint16": "<u2", "uint32": "<u4", "uint64": "<u8",
}


def expected(raw, dtype, shape):
    if dtype == "bfloat16":
        values = (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
    else:
        values = np.frombuffer(raw, PLAIN[dtype])
    return values.reshape(shape)


def same(got, want):
    # A NaN's payload may change where HDF5 converts (bfloat16 to float32); that it is a NaN may not.
    if got.shape != want.shape:
        return False
    if got.dtype == want.dtype and got.tobytes() == want.tobytes():
        return True
    return want.dtype.kind == "f" and got.dtype.kind == "f" and np.array_equal(got, want, equal_nan=True)


def main(path):
    content = open(path, "rb").read()
    assert content[:8] == b"HOLDFAST"
    length, user_block, index_length = struct.unpack_from("<3Q", content, 64)
    assert length == len(content)
    index = json.loads(content[4096:4096 + index_length])

    with h5py.File(path, "r") as file:
        assert file.userblock_size == user_block
        for tensor in index["tensors"]:
            name, dtype, shape = tensor["name"], tensor["dtype"], tensor["shape"]
            group, leaf = name.rsplit("/", 1)
            dataset = file[group][leaf]
            raw = content[tensor["offset"]:tensor["offset"] + tensor["length"]]
            got, want = np.asarray(dataset[()]), expected(raw, dtype, shape)
            assert same(got, want), f"{name}: {got} instead of {want}"
            if dtype != "bfloat16":
                assert dataset.dtype == np.dtype(PLAIN[dtype]), f"{name}: {dataset.dtype}"
            if dtype.startswith("float8"):
                text = dataset.attrs["dtype"]
                assert (text.decode() if isinstance(text, bytes) else text) == dtype
        assert file["meta/step"][()] == index["step"]
        meta = json.loads(file["meta/json"][()])
        assert meta["lr"] == 0.1 and meta["names"] == ['a"\\\n', "é"] and meta["nothing"] == "nan", meta
    print("equal", len(index["tensors"]))


main(sys.argv[1])
