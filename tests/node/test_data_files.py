"""Files of every kind become the tensors that were written; what is damaged is refused."""

from __future__ import annotations

import itertools
import os
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from syft.exceptions import FileRefused
from syft.node.data_files import load, tags_of


class Evil:
    """An object whose unpickling would be noticed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


def same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert type(found[name]) is torch.Tensor and found[name].dtype == tensor.dtype, name
        assert found[name].shape == tensor.shape, name
        assert torch.equal(found[name], tensor), name


# ------------------------------------------------------------------------------------------- numpy

ARRAYS = {
    "images": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "labels": np.array([1, 2, 3], dtype=np.int64),
    "mask": np.array([True, False]),
    "wide": np.array([2**63 + 1], dtype=np.uint64),
    "complex": np.array([1 + 2j]),
    "one": np.array(3.5),
    "none": np.empty((0, 3)),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_keep_names_shapes_and_dtypes(tmp_path: Path, save: object) -> None:
    save(tmp_path / "data.npz", **ARRAYS)
    same(load(tmp_path / "data.npz"), {n: torch.tensor(array) for n, array in ARRAYS.items()})


@pytest.mark.parametrize("name", ARRAYS)
def test_one_array_has_the_name_of_its_file(tmp_path: Path, name: str) -> None:
    np.save(tmp_path / "heights.v2.npy", ARRAYS[name])
    same(load(str(tmp_path / "heights.v2.npy")), {"heights.v2": torch.tensor(ARRAYS[name])})


@pytest.mark.parametrize("dtype", [">f8", "<f8", ">i2", ">c16", ">f2"])
def test_the_byte_order_of_another_machine_is_understood(tmp_path: Path, dtype: str) -> None:
    array = np.array([1, 2, 300]).astype(dtype)
    np.save(tmp_path / "x.npy", array)
    native = torch.tensor(array.astype(array.dtype.newbyteorder("=")))
    same(load(tmp_path / "x.npy"), {"x": native})


@pytest.mark.parametrize(
    ("array", "problem"),
    [
        (np.array(["a", "b"]), "holds <U1, which are no numbers"),
        (np.array([b"a"]), "holds |S1, which are no numbers"),
        (np.array(["2020-01-01"], "datetime64[D]"), r"holds datetime64[D], which are no numbers"),
        (np.zeros(2, [("a", "f4")]), "which are no numbers"),
        (np.array([1.0], np.longdouble), "it cannot be read as .npz (TypeError: can't convert"),
    ],
)
def test_what_is_no_number_is_refused(tmp_path: Path, array: object, problem: str) -> None:
    np.savez(tmp_path / "x.npz", good=np.ones(2), bad=array)
    with pytest.raises(FileRefused) as caught:
        load(tmp_path / "x.npz")
    assert problem in caught.value.problem


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_objects_are_refused_and_not_unpickled(tmp_path: Path, suffix: str) -> None:
    mark, path = tmp_path / "mark", tmp_path / f"x{suffix}"
    array = np.array([Evil(mark)], dtype=object)
    if suffix == ".npy":
        np.save(path, array, allow_pickle=True)
    else:
        np.savez(path, x=array)
    with pytest.raises(FileRefused, match="Object arrays cannot be loaded"):
        load(path)
    assert not mark.exists()
    np.load(path, allow_pickle=True)[... if suffix == ".npy" else "x"]
    assert mark.exists(), "so it would have been noticed"


def test_a_pickle_by_another_name_is_refused(tmp_path: Path) -> None:
    mark, path = tmp_path / "mark", tmp_path / "x.npy"
    path.write_bytes(torch.serialization.pickle.dumps(Evil(mark)))
    for suffix in (".npy", ".npz", ".pt", ".safetensors", ".csv"):
        other = path.rename(path.with_suffix(suffix))
        with pytest.raises(FileRefused):
            load(other)
        other.rename(path)
    assert not mark.exists()


def test_an_archive_with_other_things_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(FileRefused, match="'readme.txt' in it is no array"):
        load(tmp_path / "x.npz")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_arrays_of_one_name_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(2))
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.write(tmp_path / "x.npy", "x.npy")
        archive.write(tmp_path / "x.npy", "x.npy")
    with pytest.raises(FileRefused, match="two arrays in it have one name"):
        load(tmp_path / "x.npz")


def test_an_array_under_the_name_of_an_archive_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(2))
    same(load((tmp_path / "x.npy").rename(tmp_path / "y.npz")), {"y": torch.ones(2).double()})


# ------------------------------------------------------------------------------------------- torch


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".PT"])
def test_tensors_of_torch_keep_what_they_are(tmp_path: Path, suffix: str) -> None:
    tensors = {"a": torch.randn(2, 3).bfloat16(), "b": torch.tensor(7), "c": torch.empty(0, 2)}
    torch.save(tensors, tmp_path / f"x{suffix}")
    same(load(tmp_path / f"x{suffix}"), tensors)


def test_what_torch_saves_alone_or_in_a_row_is_named_after_the_file(tmp_path: Path) -> None:
    torch.save(torch.ones(2), tmp_path / "one.pt")
    torch.save((torch.ones(2), torch.zeros(3)), tmp_path / "two.pt")
    same(load(tmp_path / "one.pt"), {"one": torch.ones(2)})
    same(load(tmp_path / "two.pt"), {"two_0": torch.ones(2), "two_1": torch.zeros(3)})


def test_the_weights_of_a_model_are_tensors(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    torch.save(model.state_dict(), tmp_path / "model.pt")
    same(load(tmp_path / "model.pt"), {n: x.detach() for n, x in model.state_dict().items()})
    torch.save(nn.Parameter(torch.ones(2)), tmp_path / "parameter.pt")
    found = load(tmp_path / "parameter.pt")
    same(found, {"parameter": torch.ones(2)})
    assert not found["parameter"].requires_grad


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (7, "a int is in it"),
        ("text", "a str is in it"),
        ({"x": torch.ones(1), "epoch": 3}, "in it are no named tensors: 'epoch' (int)"),
        ({"model": {"x": torch.ones(1)}}, "in it are no named tensors: 'model' (dict)"),
        ({1: torch.ones(1)}, "in it are no named tensors: 1 (Tensor)"),
        ([torch.ones(1), None], "in it are no named tensors: 'x_1' (NoneType)"),
        ({}, "no tensor is in it"),
        ([], "no tensor is in it"),
    ],
)
def test_what_is_no_named_tensor_is_refused(tmp_path: Path, content: object, problem: str) -> None:
    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(FileRefused) as caught:
        load(tmp_path / "x.pt")
    assert caught.value.problem == problem


@pytest.mark.parametrize("zipped", [True, False])
def test_objects_saved_by_torch_are_refused_and_not_unpickled(tmp_path: Path, zipped: bool) -> None:
    mark, path = tmp_path / "mark", tmp_path / "x.pt"
    torch.save({"x": Evil(mark)}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(FileRefused, match="cannot be read as .pt .UnpicklingError: Weights only"):
        load(path)
    torch.save(nn.Linear(2, 2), path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(FileRefused, match="Weights only load failed"):
        load(path)
    assert not mark.exists()


# -------------------------------------------------------------------------------------------- table


def table(tmp_path: Path, text: str) -> torch.Tensor:
    path = tmp_path / "table.csv"
    path.write_bytes(text.encode())
    found = load(path)
    assert found.keys() == {"table"}
    return found["table"]


def test_whole_numbers_stay_whole_and_others_have_the_default_dtype(tmp_path: Path) -> None:
    whole = table(tmp_path, "1,2\n3,-9223372036854775808\n")
    assert whole.dtype == torch.int64 and whole.tolist() == [[1, 2], [3, -(2**63)]]
    mixed = table(tmp_path, "1,2.5\n3,4\n")
    assert torch.equal(mixed, torch.tensor([[1, 2.5], [3, 4]]))
    assert table(tmp_path, "1.0\n2.0\n").dtype == torch.float32
    large = table(tmp_path, "1.5\n99999999999999999999\n")
    assert torch.equal(large, torch.tensor([[1.5], [1e20]]))
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(table(tmp_path, "0.1\n"), torch.tensor([[0.1]]))
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,2.5\n3,4\n",
        "\ufeffa,b\r\n1,2.5\r\n3,4\r\n",
        '"a, with a comma","b\non two lines"\n1,2.5\n3,4',
        "\n\na,b\n1,2.5\n\n3,4\n\n",
        "1,2.5\n3,4",
        "\ufeff1,2.5\n3,4",
        '"1","2.5"\n"3","4"\n',
        " 1 , 2.5 \n 3 , 4 ",
        "\n1,2.5\n3,4\n",
        "#a,b\n1,2.5\n3,4\n",
    ],
)
def test_a_line_of_names_may_be_there_or_not(tmp_path: Path, text: str) -> None:
    assert torch.equal(table(tmp_path, text), torch.tensor([[1, 2.5], [3, 4]]))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no data"),
        ("\n\n", "no data"),
        ("a,b\n", "no data"),
        ("a,b\n1,x\n2,2\n", "column 'b' has numbers, and words in line 2 ('x')"),
        ("a,b\n1,2\n3\n", "line 3 has 1 cells, and the first one has 2"),
        ("a,b,c\n1,2\n3,4\n", "line 2 has 2 cells, and the first one has 3"),
        ("1,\n3,4\n", "neither names nor numbers alone ('' is no number)"),
        ("1,x\n3,4\n", "neither names nor numbers alone ('x' is no number)"),
        ("1,2\n3,4#5\n", "column 'column 2' has numbers, and words in line 2 ('4#5')"),
        ("1\n1_000\n", "has numbers, and words in line 2 ('1_000')"),
        ("1\n99999999999999999999\n", "has too many digits for a whole number in line 2"),
    ],
)
def test_a_table_of_something_else_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(FileRefused) as caught:
        table(tmp_path, text)
    assert problem in caught.value.problem


def test_a_table_in_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes("gr\u00f6\u00dfe\n1\n".encode("latin-1"))
    with pytest.raises(FileRefused, match="line 1 is not in UTF-8 .byte 0xf6"):
        load(tmp_path / "x.csv")


@given(
    rows=st.integers(1, 4).flatmap(
        lambda width: st.lists(
            st.lists(st.floats(width=32), min_size=width, max_size=width), min_size=1, max_size=6
        )
    ),
    named=st.booleans(),
)
def test_every_number_comes_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[float]], named: bool
) -> None:
    path = tmp_path_factory.mktemp("table") / "x.csv"
    head = ",".join("abcd"[: len(rows[0])]) + "\n" if named else ""
    path.write_text(head + "".join(",".join(map(repr, row)) + "\n" for row in rows))
    found = load(path)["x"]
    assert torch.equal(torch.nan_to_num(found), torch.nan_to_num(torch.tensor(rows)))
    assert torch.equal(found.isnan(), torch.tensor(rows).isnan())


# -------------------------------------------------------------------------------------- safetensors


def test_safetensors_are_read(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(2, 3).bfloat16(), "b": torch.tensor(7), "c": torch.ones(2) > 0}
    save_file(tensors, tmp_path / "x.safetensors")
    same(load(tmp_path / "x.safetensors"), tensors)


def test_without_the_package_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "x.safetensors")
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    instead = "is not installed. Instead: pip install 'syft-chain.worker.'"
    with pytest.raises(FileRefused, match=instead):
        load(tmp_path / "x.safetensors")


# ---------------------------------------------------------------------------------- files as files


def test_what_is_not_there_or_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileRefused, match="it is not there"):
        load(tmp_path / "x.npz")
    (tmp_path / "y.csv").mkdir()  # a folder of images has no such name
    with pytest.raises(FileRefused, match="it is no file"):
        load(tmp_path / "y.csv")


@pytest.mark.parametrize("name", ["x", "x.txt", "x.pkl", "x.npz.gz", "npz"])
def test_other_kinds_are_refused_with_those_that_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(FileRefused, match="not read. Instead: use one of .npy, .npz, .pt, .pth"):
        load(tmp_path / name)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".pt", ".pth", ".csv", ".safetensors"])
@given(content=st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / f"x{suffix}"
    path.write_bytes(content)
    try:
        found = load(path)
    except FileRefused as error:
        assert "\n" not in error.problem and len(error.problem) < 500
        return
    assert suffix == ".csv" and found["x"].dim() == 2


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".pt", ".safetensors"])
def test_a_damaged_file_is_refused_or_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    savers = {
        ".npy": lambda: np.save(path, np.arange(6.0)),
        ".npz": lambda: np.savez_compressed(path, x=np.arange(6.0)),
        ".pt": lambda: torch.save({"x": torch.arange(6.0)}, path),
        ".safetensors": lambda: save_file({"x": torch.arange(6.0)}, path),
    }
    savers[suffix]()
    whole = path.read_bytes()
    refused = 0
    cuts = [whole[:at] for at in range(0, len(whole), max(1, len(whole) // 60))]
    flips = [
        whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]
        for at in range(0, len(whole), max(1, len(whole) // 120))
    ]
    for content in itertools.chain(cuts, flips):
        path.write_bytes(content)
        try:
            load(path)
        except FileRefused:
            refused += 1
    assert refused >= len(cuts)


# --------------------------------------------------------------------------------------------- tags


@pytest.mark.parametrize(
    ("name", "given_tags", "tags"),
    [
        ("images", ["#mnist", "#train"], ("#mnist", "#train", "#images")),
        ("#images", ["#images"], ("#images",)),
        ("fc1.weight", [], ("#fc1.weight",)),
        ("x", ["#x", "#a", "#x"], ("#x", "#a")),
    ],
)
def test_a_tensor_has_the_tags_given_and_its_name(
    name: str, given_tags: list[str], tags: tuple[str, ...]
) -> None:
    assert tags_of(name, given_tags) == tags
