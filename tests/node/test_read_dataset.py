"""A file as a data set: images, arrays and tables; and what is shown of it, to whom."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import syft as sy
from syft.exceptions import FileRefused, UnusableSetting
from syft.federated.columns import Column, ColumnKind, Columns
from syft.node.announcement import announcement
from syft.node.cli import command_line
from syft.node.offered_data import OfferedTensor, read_offered

SECRETS = ("918273", "55443.25", "Zyxwvut", "Qponml", "-7305", "7305", "1950", "77")
"""Values of the table, and the number of its empty cells."""


@pytest.fixture
def patients(tmp_path: Path) -> Path:
    """A table with values that stand nowhere else."""
    rows = "".join(f"{n % 2},,Zyxwvut,1950-01-01,no\n" for n in range(77))
    more = "918273,55443.25,Qponml,1950-01-01,yes\n"
    path = tmp_path / "patients.csv"
    path.write_text(f"age,crp,ward,born,ill\n{rows}{more}")
    return path


def shown(thing: Any) -> str:
    """All that a prompt and a notebook show of something."""
    text = f"{thing!r}\n{thing}\n{thing._repr_html_() or ''}"
    return re.sub(r"(?<=:)\d{15,}", "ID", text)


# ---------------------------------------------------------------------------- never a value


def test_no_value_is_shown_of_a_data_set(patients: Path, hook: sy.TorchHook) -> None:
    dataset = sy.read_dataset(patients, target="ill")
    dataset.data.describe("those of ward 3\nand more")
    assert dataset.columns is not None and dataset.columns["ill"] is dataset.columns.target
    text = shown(dataset) + shown(dataset.columns) + repr(list(dataset.columns))
    for expected in (
        "age: integer",
        "ward: category",
        "ill: boolean, target",
        "float32 (78, 4",
        "those",
    ):
        assert expected in text
    assert "<td><b>ward</b></td><td>category</td>" in text
    assert [secret for secret in SECRETS if secret in text] == []
    # What would be found if it were shown.
    assert "5.5443e+04" in str(dataset.data) and dataset.columns["crp"].empty == 77
    assert dataset.columns["ward"].categories == ("Qponml", "Zyxwvut")


def test_what_others_see_is_what_the_owner_published(patients: Path, bob: sy.VirtualWorker) -> None:
    for published in (False, True):
        dataset = sy.read_dataset(patients, target="ill")
        dataset.data.tag("#patients").describe("those of ward 3")
        if published:
            dataset.publish()
        assert dataset.data.description.startswith("those of ward 3")
        there = dataset.data.private_tensor(["ann"]).send(bob, user="ann")
        (found,) = sy.PrivateGridNetwork(bob).search("#patients")["bob"]
        text = shown(found) + shown(there) + found.description
        assert "those of ward 3" in text
        assert ("ward: category" in text) is published
        assert ("\n\t\till: boolean, target" in text) is published
        assert ("<td><b>ward</b></td><td>category</td>" in text) is published
        assert [secret for secret in SECRETS if secret in text] == []
        del there, found
        bob.clear_objects()


def test_a_table_of_categories_is_published_by_its_name(patients: Path, hook: sy.TorchHook) -> None:
    dataset = sy.read_dataset(patients, target="ill")
    text = dataset.publish("ward", text="those of 2024").data.description
    assert text.splitlines()[:2] == ["those of 2024", "78 rows"]
    assert "- ward: category\n    0 = Qponml\n    1 = Zyxwvut\n- born: date" in text
    with pytest.raises(UnusableSetting, match="names of columns of categories, got 'age'"):
        dataset.publish("age")
    with pytest.raises(UnusableSetting, match="one with columns"):
        sy.BaseDataset(torch.ones(1), torch.ones(1)).publish()


def test_columns_are_found_again_at_the_other_end(patients: Path, bob: sy.VirtualWorker) -> None:
    dataset = sy.read_dataset(patients, target="ill").publish("ward")
    ids = bob.hold(dataset.data.tag("#data"), dataset.targets.tag("#target"))
    assert len(ids) == 2
    found = sy.FederatedDataset.from_search([bob], "#data", "#target")["bob"]
    assert found.columns is not None and found.columns.names == ("age", "crp", "ward", "born")
    assert found.columns.target == Column("ill", ColumnKind.BOOLEAN)
    assert found.columns["born"].unit == "days since 1970-01-01"
    assert found.columns["ward"].categories == ("Qponml", "Zyxwvut")
    assert found.columns["crp"].empty == 0
    assert "ward: category" in repr(found) and "<b>ward</b>" in found._repr_html_()
    age = found.data[:, found.columns.place("age")]
    assert age.get().max().item() == 918273
    bob.clear_objects()


def test_a_data_set_that_is_sent_keeps_its_columns(patients: Path, bob: sy.VirtualWorker) -> None:
    there = sy.read_dataset(patients, target="ill").send(bob)
    assert there.columns is not None and there.columns["ward"].categories[0] == "Qponml"
    assert repr(there).count("ward: category") == 1
    assert there._repr_html_().count("<b>ward</b>") == 1
    assert [secret for secret in SECRETS if secret in shown(there)] == []
    assert there.get().columns is there.columns
    published = sy.read_dataset(patients, target="ill").publish().send(bob)
    assert repr(published).count("ward: category") == 1
    assert published._repr_html_().count("<b>ward</b>") == 1


def test_a_data_set_that_is_shared_shows_no_value(
    patients: Path, hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    carol = sy.VirtualWorker(hook, id="carol")
    dataset = sy.read_dataset(patients, target="ill", leave_out=["crp"]).fix_precision()
    assert [secret for secret in SECRETS if secret in shown(dataset)] == []
    shared = dataset.share(alice, bob, crypto_provider=carol)
    text = shown(shared)
    assert "ward: category" in text and "alice, bob" in text
    assert [secret for secret in SECRETS if secret in text] == []


def test_names_cannot_break_a_description() -> None:
    names = ["a: b", "- x", "y, target", "z (days)", "<b>", "ill: boolean, target"]
    columns = Columns([Column(name, ColumnKind.NUMBER) for name in names])
    back = Columns.in_description(columns.published(3, "title"))
    assert back is not None and list(back.names) == names and back.target is None
    assert "&lt;b&gt;" in columns._repr_html_()
    assert Columns.in_description("- a: number") is None, "the first line is no column"
    assert Columns.in_description("x\n- a: b\n- : number\n- c: date, target, d") is None
    with pytest.raises(UnusableSetting, match="one of a: b, - x"):
        columns["q"]


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (["a,s,y\n1,f,0\n", "s,a,y\nf,1,0\n"], "'a: integer' and 's: category' at bob and alice"),
        (["a,s,y\n1,f,0\n", "a,s,y\n1.5,f,0\n"], "'a: integer' and 'a: number'"),
        (["a,s,y\n1,f,0\n", "a,y\n1,0\n"], "'s: category' and 'y: integer, target'"),
        (["a,s,y\n1,f,0\n2,m,1\n", "a,s,y\n1,m,0\n"], "the categories of 's' at bob and alice"),
        (["a,s,y\n1,f,0\n", "a,s,y\n9,f,1\n"], None),
    ],
)
def test_workers_whose_columns_differ_are_no_data_set(
    texts: list[str],
    problem: str | None,
    tmp_path: Path,
    bob: sy.VirtualWorker,
    alice: sy.VirtualWorker,
) -> None:
    for text, worker in zip(texts, (bob, alice), strict=True):
        (tmp_path / "x.csv").write_text(text)
        dataset = sy.read_dataset(tmp_path / "x.csv", target="y")
        dataset.publish(*(["s"] if "s" in dataset.columns.names else []))
        worker.hold(dataset.data.tag("#X"), dataset.targets.tag("#Y"))
    if problem is None:
        assert len(sy.FederatedDataset.from_search([bob, alice], "#X", "#Y")) == 2
    else:
        with pytest.raises(UnusableSetting, match=problem):
            sy.FederatedDataset.from_search([bob, alice], "#X", "#Y")
    for worker in (bob, alice):
        worker.clear_objects()


def test_of_many_columns_a_pointer_shows_the_first(bob: sy.VirtualWorker) -> None:
    many = Columns([Column(f"c{n}", ColumnKind.NUMBER) for n in range(300)])
    there = torch.ones(1, 300).describe(many.published(1, "wide")).send(bob)
    assert "\n\t\tc19: number\n\t\t…: 280 more" in repr(there) and "c20" not in repr(there)
    found = sy.BaseDataset(there, torch.ones(1).send(bob)).columns
    assert found is not None and len(found) == 300
    lines = repr(found).splitlines()
    assert len(lines) == 101 and lines[-2:] == ["…: 200 more", "c299: number"]
    assert found._repr_html_().count("<tr>") == 102


# -------------------------------------------------------------------------------- the command


def offered(*arguments: str) -> list[OfferedTensor]:
    options = command_line().parse_args(["worker", *arguments])
    return read_offered(options.data)


def test_the_command_holds_data_and_target_apart(patients: Path, hook: sy.TorchHook) -> None:
    said = ["--data", str(patients), "--target", "ill", "--tag", "study", "--private", "ann"]
    data, target = offered(*said)
    assert data.tags == ("#study", "#patients", "#data")
    assert target.tags == ("#study", "#patients", "#target")
    assert data.readers == target.readers == ("ann",)
    assert data.tensor.description is None and target.tensor.description is None
    published, _ = offered(*said, "--describe", "ward 3", "--publish-columns")
    assert published.tensor.description.startswith("ward 3\n78 rows\n- age: integer\n")
    assert "Qponml" not in published.tensor.description
    table, _ = offered(*said, "--publish-categories", "ward")
    assert "    0 = Qponml" in table.tensor.description


def test_the_owner_is_told_of_kinds_and_of_what_was_not_read(
    tmp_path: Path, hook: sy.TorchHook
) -> None:
    rows = "".join(f"{n},,note {n},{'fm'[n % 2]}\n" for n in range(30))
    (tmp_path / "x.csv").write_text(f"age,crp,note,sex\n{rows}")
    held = offered("--data", str(tmp_path / "x.csv"))
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as server:
        text = announcement(server, held)
    assert "columns, shown to nobody (say --publish-columns):\n        age: integer" in text
    assert "note: column 'crp': 30 empty cells" in text
    assert "note: column 'note' is free text and was left out" in text
    assert "note 1" not in text.replace("note: column", "")


def test_all_options_of_a_table_reach_it(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    rows = "1,5\t01/02/1970\t1\tf\tq\n-9\t\t2+\tm\tr\n"
    path.write_bytes(f"größe\tborn\tstage\tsex\tid\n{rows}".encode("cp1252"))
    said = ["--encoding", "cp1252", "--separator", "tab", "--decimal", "comma", "--empty", "-9"]
    said += ["--kind", "stage=category", "--date-format", "born=%m/%d/%Y", "--leave-out", "id"]
    (held,) = offered("--data", str(path), *said, "--categories", "sex=m,f")
    found = held.tensor.tolist()
    assert found[0] == [1.5, 1, 0, 1] and found[1][2:] == [1, 0]
    assert np.isnan(found[1][:2]).all()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--kind", "age"], "'age' is not written as COLUMN="),
        (["--image-size", "64"], "--image-size is a height and a width, as 64x64, and not 64"),
    ],
)
def test_what_is_typed_wrong_is_said(
    options: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        offered("--data", "x.csv", *options)
    assert problem in capsys.readouterr().err


def test_what_is_said_of_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones(2))
    for options in (["--target", "x"], ["--empty", "9"]):
        with pytest.raises(FileRefused, match="it is no table"):
            offered("--data", str(tmp_path / "x.npz"), *options)
    with pytest.raises(UnusableSetting, match="said of a table or images"):
        offered("--data", str(tmp_path / "x.npz"), "--publish-columns")
    with pytest.raises(UnusableSetting, match="image_size"):
        offered("--data", str(tmp_path / "x.npz"), "--image-size", "2x2")


# ------------------------------------------------------------------------------------ arrays


def test_two_arrays_become_a_data_set(tmp_path: Path, hook: sy.TorchHook) -> None:
    arrays = {"x": torch.rand(4, 2), "y": torch.arange(4)}
    np.savez(tmp_path / "a.npz", **{name: tensor.numpy() for name, tensor in arrays.items()})
    save_file(arrays, tmp_path / "a.safetensors")
    for name in ("a.npz", "a.safetensors"):
        dataset = sy.read_dataset(tmp_path / name, target="y")
        assert torch.equal(dataset.data, arrays["x"]) and torch.equal(dataset.targets, arrays["y"])
        assert dataset.columns is None and "0." not in shown(dataset)
    with pytest.raises(UnusableSetting, match="target must be one of x, y, got 'z'"):
        sy.read_dataset(tmp_path / "a.npz", target="z")
    np.savez(tmp_path / "a.npz", x=np.ones(2), y=np.ones(2), z=np.zeros(2))
    with pytest.raises(UnusableSetting, match="data must be one of x, z, got None"):
        sy.read_dataset(tmp_path / "a.npz", target="y")
    assert sy.read_dataset(tmp_path / "a.npz", target="y", data="z").data.sum() == 0


def test_a_table_needs_a_target_and_warns_of_what_it_left_out(tmp_path: Path) -> None:
    rows = "".join(f"{n},note {n},{n % 2}\n" for n in range(30))
    (tmp_path / "x.csv").write_text(f"a,note,y\n{rows}")
    with pytest.warns(UserWarning, match="x.csv: column 'note' is free text and was left out."):
        sy.read_dataset(tmp_path / "x.csv", target="y")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sy.read_dataset(tmp_path / "x.csv", target="y", leave_out=["note"])
        sy.read_dataset(tmp_path / "x.csv", target="y", kinds={"note": "category"})
        with pytest.raises(UnusableSetting, match="target must be the name of a column, got None"):
            sy.read_dataset(tmp_path / "x.csv", leave_out=["note"])


# ------------------------------------------------------------------------------------ images


@pytest.fixture
def scans(tmp_path: Path) -> Iterator[Path]:
    """Two classes of grey images of 3 x 2."""
    for number, name in enumerate(["ill", "well"]):
        (tmp_path / "scans" / name).mkdir(parents=True)
        for n in range(2):
            pixels = np.arange(6, dtype=np.uint8).reshape(2, 3) + 10 * n + 100 * number
            Image.fromarray(pixels).save(tmp_path / "scans" / name / f"{n}.png")
    (tmp_path / "scans" / ".DS_Store").write_bytes(b"x")
    (tmp_path / "scans" / "ill" / "Thumbs.db").write_bytes(b"x")
    yield tmp_path / "scans"


def test_a_folder_of_images_is_a_data_set(scans: Path, bob: sy.VirtualWorker) -> None:
    dataset = sy.read_dataset(scans)
    expected = np.arange(6).reshape(1, 1, 2, 3) + np.array([0, 10, 100, 110]).reshape(4, 1, 1, 1)
    assert dataset.data.dtype == torch.uint8
    np.testing.assert_array_equal(dataset.data.numpy(), expected)
    assert dataset.targets.tolist() == [0, 0, 1, 1]
    assert dataset.columns is not None and dataset.columns.target is not None
    assert dataset.columns.target.categories == ("ill", "well")
    assert "uint8 (4, 1, 2, 3)" in repr(dataset) and "well" not in shown(dataset)
    data, target = offered("--data", str(scans), "--publish-categories", "class")
    assert data.tags == ("#scans", "#data") and target.tags == ("#scans", "#target")
    assert data.tensor.description == "4 rows\n- class: category, target\n    0 = ill\n    1 = well"
    assert sy.read_dataset(scans, image_size=(4, 6)).data.shape == (4, 1, 4, 6)


@pytest.mark.parametrize(
    ("mode", "array", "dtype", "channels"),
    [
        ("RGB", np.arange(18, dtype=np.uint8).reshape(2, 3, 3), torch.uint8, 3),
        ("I;16", np.arange(6, dtype=np.uint16).reshape(2, 3) * 10000, torch.int32, 1),
    ],
)
def test_colours_and_depths_are_kept(
    tmp_path: Path, mode: str, array: Any, dtype: torch.dtype, channels: int, hook: sy.TorchHook
) -> None:
    (tmp_path / "scans" / "a").mkdir(parents=True)
    image = Image.fromarray(array)
    assert image.mode == mode
    image.save(tmp_path / "scans" / "a" / "0.png")
    data = sy.read_dataset(tmp_path / "scans").data
    assert data.dtype == dtype and data.shape == (1, channels, 2, 3)
    wanted = array.transpose(2, 0, 1) if channels == 3 else array[None]
    np.testing.assert_array_equal(data[0].numpy(), wanted)


def test_a_photograph_is_turned_as_its_camera_said(tmp_path: Path) -> None:
    (tmp_path / "scans" / "a").mkdir(parents=True)
    image = Image.fromarray(np.arange(6, dtype=np.uint8).reshape(2, 3))
    exif = image.getexif()
    exif[0x0112] = 6  # turned by a quarter
    image.save(tmp_path / "scans" / "a" / "0.png", exif=exif)
    found = sy.read_dataset(tmp_path / "scans").data[0, 0].numpy()
    np.testing.assert_array_equal(found, np.rot90(np.arange(6).reshape(2, 3), -1))


def add(scans: Path, name: str, image: Image.Image, **options: Any) -> None:
    image.save(scans / name, **options)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda s: add(s, "ill/2.png", Image.new("L", (4, 2))), "it is 4 wide and 2 high, one"),
        (lambda s: add(s, "ill/2.png", Image.new("RGB", (3, 2))), "three colours of uint8, and"),
        (lambda s: add(s, "ill/2.png", Image.new("RGBA", (3, 2))), "it has transparency"),
        (lambda s: add(s, "ill/2.png", Image.new("L", (3, 2)), transparency=0), "transparency"),
        (
            lambda s: add(
                s,
                "ill/2.gif",
                Image.new("L", (3, 2)),
                save_all=True,
                append_images=[Image.new("L", (3, 2), 9)],
            ),
            "several pictures are in it",
        ),
        (lambda s: (s / "ill/2.png").write_text("hello"), "it is no image of PNG, JPEG"),
        (lambda s: (s / "ill/2.eps").write_text("%!PS-Adobe-3.0 EPSF-3.0\n"), "it is no image"),
        (
            lambda s: (s / "ill/0.png").write_bytes((s / "ill/0.png").read_bytes()[:50]),
            "it is damaged",
        ),
        (lambda s: (s / "notes.txt").write_text("hello"), "'notes.txt' is beside the folders"),
        (lambda s: (s / "none").mkdir(), "no image is in it"),
    ],
)
def test_what_is_no_folder_of_like_images_is_refused_by_name(
    scans: Path, change: Any, problem: str
) -> None:
    change(scans)
    with pytest.raises(FileRefused) as caught:
        sy.read_dataset(scans)
    assert problem in caught.value.problem


def test_an_empty_folder_and_what_is_said_of_a_folder_are_refused(
    tmp_path: Path, scans: Path
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileRefused, match="no folders are in it"):
        sy.read_dataset(tmp_path / "empty")
    with pytest.raises(UnusableSetting, match="the folders are the classes, got 'x'"):
        sy.read_dataset(scans, target="x")
    with pytest.raises(FileRefused, match="it is no table"):
        sy.read_dataset(scans, empty=["x"])


def test_without_pillow_it_says_what_to_install(
    scans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(FileRefused, match="Instead: pip install 'syft-chain.worker.'"):
        sy.read_dataset(scans)
