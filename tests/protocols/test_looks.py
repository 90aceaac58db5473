"""What people see of a protocol before it runs: text, drawing, cost, and the classes of a tape."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import torch
from torch import nn

import syft as sy
from syft.protocols.lane_drawing import draw
from syft.protocols.tapes import CommunicationAction, ComputationAction

SVG = "{http://www.w3.org/2000/svg}"
PICTURE = Path(__file__).resolve().parents[2] / "docs/pictures/protocol.svg"


def ages():
    torch.manual_seed(0)
    model = nn.Linear(3, 1)

    @sy.protocol(clinic=sy.RoleWorker(), lab=sy.RoleWorker(state=(model,)))
    def score(ages, weights):
        scaled = (ages - 40) / 10
        (net,) = lab.state.read()  # noqa: F821
        scores = net(scaled.send(lab))  # noqa: F821
        total = scores.move(clinic) * weights  # noqa: F821
        return total.sum().get()

    with torch.no_grad():
        score.build(torch.ones(4, 3), torch.ones(4, 1))
    return score


def test_the_code_has_a_line_for_each_send(hook):
    code = ages().code
    assert [line.strip() for line in code.splitlines() if "->" in line] == [
        "_3 -> lab  # 2",
        "_3 -> local  # 2",
        "_3 -> clinic  # 1",
    ]
    assert code.count("def ") == 3 and "def clinic(weights, from_lab):" in code


def test_inputs_and_outputs(hook):
    score = ages()
    assert score.inputs == {
        "local": {"ages": "float32 (4, 3)"},
        "clinic": {"weights": "float32 (4, 1)"},
        "lab": {},
    }
    assert list(score.outputs["local"].values()) == ["float32 ()"]
    assert "clinic: takes (weights: float32 (4, 1)), keeps ()" in repr(score)
    assert "takes (weights" in repr(score.plans["clinic"])


def test_a_tape_holds_actions_of_two_kinds(hook):
    plans = ages().plans
    actions = [action for role in plans.values() for action in role.actions]
    assert {type(action) for action in actions} == {ComputationAction, CommunicationAction}
    sent = [action for action in actions if type(action) is CommunicationAction]
    assert [(a.origin, a.target, a.what) for a in sent] == [
        ("local", "lab", "_3"),
        ("clinic", "local", "_3"),
        ("lab", "clinic", "_3"),
    ]
    first, second = plans["local"].actions[:2]
    assert (first.op, first.inputs, first.outputs) == ("torch.Tensor.sub", ("ages",), ("_2",))
    assert first.waits_for == () and second.waits_for == (first,)
    linear = plans["lab"].actions[0]
    assert linear.op == "torch.nn.functional.linear" and linear.waits_for == (sent[0],)
    assert all("test_looks.py" in action.line for action in actions)
    assert str(sent[0]) == "_3 -> lab" and "torch.Tensor.sub(ages)" in str(first)


def test_the_drawing_has_a_lane_for_each_role(hook):
    score = ages()
    root = ElementTree.fromstring(score.draw())
    texts = [each.text for each in root.iter(f"{SVG}text")]
    assert {"local", "clinic", "lab"} <= set(texts)
    arrows = [each for each in root.iter(f"{SVG}line") if each.get("marker-end")]
    assert len(arrows) == 3
    assert score.draw() in score._repr_html_() and score._repr_svg_() == score.draw()
    assert PICTURE.read_text(encoding="utf-8") == score.draw() + "\n"


def test_text_in_a_drawing_is_escaped(hook):
    role = ages().plans["lab"]
    role.name = "<script>"
    role.actions = ()
    root = ElementTree.fromstring(draw("</svg><b>", [role]))
    assert root.find(f"{SVG}title").text == "</svg><b>"
    assert "<script>" in [each.text for each in root.iter(f"{SVG}text")]


def test_the_cost_of_a_run(hook, alice, bob):
    score = ages()
    deployed = score.deploy(clinic=alice, lab=bob)
    cost = deployed.cost(torch.ones(10, 3), torch.ones(10, 1))
    assert {(e.origin, e.target): (e.messages, e.bytes) for e in cost.edges} == {
        ("local", "lab"): (1, 120),
        ("lab", "clinic"): (1, 40),
        ("clinic", "local"): (1, 4),
    }
    assert (cost.messages, cost.bytes) == (3, 164) and "local -> lab: 1 message," in str(cost)
    with sy.trace() as log:
        deployed.cost(torch.ones(10, 3), torch.ones(10, 1))
    assert len(log) == 0


def test_no_arrow_crosses_a_block(hook):
    """Arrows lead past lanes in which something is done meanwhile."""
    names = [f"role{place}" for place in range(4)]
    roles = [sy.RoleWorker(name) for name in names]

    @sy.protocol(**dict(zip(names, roles, strict=True)))
    def everybody(x):
        values = [x.send(role) * place + 1 for place, role in enumerate(roles)]
        sums = [value.move(roles[place - 1]) + 1 for place, value in enumerate(values)]
        return [total.move(role) * 2 for total, role in zip(sums, roles, strict=True)]

    everybody.build(torch.ones(2))
    root = ElementTree.fromstring(everybody.draw())
    blocks = [
        {name: float(one.get(name)) for name in ("x", "y", "width", "height")}
        for one in root.iter(f"{SVG}rect")
        if one.get("rx")
    ]
    arrows = [one for one in root.iter(f"{SVG}line") if one.get("marker-end")]
    assert len(blocks) >= 4 and len(arrows) == 12
    for arrow in arrows:
        y, ends = float(arrow.get("y1")), sorted(float(arrow.get(end)) for end in ("x1", "x2"))
        for block in blocks:
            if ends[0] < block["x"] + block["width"] and block["x"] < ends[1]:
                assert not block["y"] <= y <= block["y"] + block["height"]
