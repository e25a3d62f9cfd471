"""read_export.py KIND FILE…: opens an export with the library that it was made for, and prints every tensor as
`name type shape md5-of-its-bytes`, sorted by name. Kinds: pt, pt-mmap, safetensors, h5, sharded."""
import hashlib
import json
import os
import sys


def line(name, dtype, shape, data):
    return f"{name} {dtype} {list(shape)} {hashlib.md5(data).hexdigest()}"


def torch_lines(tensors):
    import torch
    for name, tensor in tensors.items():
        assert isinstance(tensor, torch.Tensor), (name, type(tensor))
        flat = tensor.detach().contiguous()
        data = flat.reshape(-1).view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        yield line(name, str(tensor.dtype).replace("torch.", ""), tensor.shape, data)


def read(kind, path):
    if kind.startswith("pt"):
        import torch
        return torch_lines(torch.load(path, weights_only=True, mmap=kind == "pt-mmap" or None))
    if kind == "safetensors":
        from safetensors.torch import load_file
        return torch_lines(load_file(path))
    if kind == "sharded":
        from safetensors.torch import load_file
        index = json.load(open(path))
        folder = os.path.dirname(path)
        shards = {shard: load_file(os.path.join(folder, shard)) for shard in set(index["weight_map"].values())}
        assert sum(len(shard) for shard in shards.values()) == len(index["weight_map"])
        total = sum(tensor.numel() * tensor.element_size() for shard in shards.values() for tensor in shard.values())
        assert total == index["metadata"]["total_size"], (total, index["metadata"])
        return torch_lines({key: shards[shard][key] for key, shard in index["weight_map"].items()})
    import h5py
    with h5py.File(path, "r") as file:
        assert file.userblock_size == 0, file.userblock_size
        return [line(name, data.dtype, data.shape, data[()].tobytes()) for name, data in file["model"].items()]


print("\n".join(sorted(read(sys.argv[1], sys.argv[2]))))
