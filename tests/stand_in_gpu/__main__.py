"""Run pytest on a machine with a stand-in for a GPU: ``python -m tests.stand_in_gpu ARGUMENTS``.

The device must be there before torch looks for one, so it is built and loaded before torch is
imported.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("device.cpp")
BUILT = Path(__file__).resolve().parents[2] / "build" / "stand_in_gpu"


def compiler() -> str | None:
    """The compiler for C++, if there is one."""
    return shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")


def built(cxx: str) -> Path:
    """The library; compiled anew where its source or torch has changed."""
    found = importlib.util.find_spec("torch")
    assert found is not None and found.origin is not None
    torch = Path(found.origin).parent
    version = (torch / "version.py").read_bytes()
    name = hashlib.sha256(SOURCE.read_bytes() + version).hexdigest()[:16]
    library = BUILT / f"{name}.so"
    if not library.exists():
        BUILT.mkdir(parents=True, exist_ok=True)
        include, lib = torch / "include", torch / "lib"
        headers = ["-isystem", str(include), "-isystem", str(include / "torch/csrc/api/include")]
        links = [f"-L{lib}", "-ltorch", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{lib}"]
        flags = ["-O0", "-std=c++20", "-fPIC", "-shared", *headers]
        unfinished = library.with_suffix(f".{os.getpid()}")
        subprocess.run([cxx, *flags, str(SOURCE), "-o", str(unfinished), *links], check=True)
        unfinished.rename(library)
    return library


def start(library: Path) -> None:
    """Load the device, and have Python's side of torch believe that it is a GPU."""
    ctypes.CDLL(str(library))
    import torch

    cuda: Any = torch.cuda
    cuda._lazy_init = lambda: None
    cuda.is_available = lambda: True
    cuda.is_initialized = lambda: False
    cuda.device_count = lambda: 1
    cuda.current_device = lambda: 0
    cuda.synchronize = lambda *device: None
    cuda.get_device_capability = lambda *device: (8, 0)
    cuda.get_device_properties = lambda *device: types.SimpleNamespace(
        name="stand-in", major=8, minor=0, total_memory=1 << 34, multi_processor_count=1
    )
    cuda.get_rng_state = lambda *device: torch.zeros(8, dtype=torch.uint8)
    cuda.get_rng_state_all = lambda: []
    cuda.set_rng_state = cuda.set_rng_state_all = lambda *state: None
    cudnn: Any = torch.backends.cudnn
    cudnn.is_acceptable = lambda tensor: False
    storage: Any = torch.storage._StorageBase
    storage.clone = _cloned


def _cloned(storage: Any) -> Any:
    """A copy of a storage: torch without CUDA makes none on another device."""
    import torch

    words = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    return words.clone().untyped_storage()


def main() -> int:
    cxx = compiler()
    if cxx is None:
        print("No compiler for C++: the tests with a stand-in for a GPU are left out.")
        return 0
    start(built(cxx))
    import pytest

    # Torch's fallback hands kernels results of another shape, which they resize.
    resized = "ignore:An output with one or more elements was resized"
    return int(pytest.main(["-p", "no:cacheprovider", "-W", resized, *sys.argv[1:]]))


if __name__ == "__main__":
    sys.exit(main())
