"""The C of a ticket before it is compiled: what shares memory never meets; strings; other makes."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machines import need
from rivals.deploy.c.c_network import IMAGE, CNetwork, CStep, generate, take_apart
from rivals.deploy.c.c_source import quoted
from rivals.deploy.c.static_memory import Buffer, place, plan
from rivals.errors import RivalsError
from shipped import NETWORKS, shipped

lives = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted)
buffers = st.lists(st.tuples(st.integers(1, 500), lives), min_size=1, max_size=30)


@given(buffers)
def test_buffers_that_meet_lie_apart(facts) -> None:
    made = [Buffer(floats, *life) for floats, life in facts]
    together = place(made)
    for one in made:
        assert 0 <= one.start <= one.start + one.floats <= together
        for other in made:
            if one is not other and one.meets(other):
                assert (
                    one.start + one.floats <= other.start or other.start + other.floats <= one.start
                )
    assert together <= sum(buffer.floats for buffer in made)
    assert together >= max(
        sum(b.floats for b in made if b.first <= step <= b.last) for step in range(21)
    )


def chain(*steps: CStep, **shapes: tuple[int, ...]) -> CNetwork:
    return CNetwork("", steps, {IMAGE: (1, 4), "scores": (1, 2), **shapes}, 0)


def test_a_value_is_written_over_only_when_nobody_reads_it_again() -> None:
    relu, use = CStep("f", "Relu", (IMAGE, "a")), CStep("g", "Gemm", ("a", "w", "scores"))
    assert plan(chain(relu, use, a=(1, 4)), prepares=True).floats == 4
    again = CStep("h", "Add", ("a", IMAGE, "b"))
    kept = plan(
        chain(relu, again, CStep("g", "Gemm", ("b", "w", "scores")), a=(1, 4), b=(1, 4)), True
    )
    assert kept.floats == 8
    assert kept.starts["a"] != kept.starts[IMAGE]
    assert kept.starts["b"] in (kept.starts["a"], kept.starts[IMAGE])


def test_the_image_of_a_caller_is_not_written_over() -> None:
    relu, use = CStep("f", "Relu", (IMAGE, "a")), CStep("g", "Gemm", ("a", "w", "scores"))
    memory = plan(chain(relu, use, a=(1, 4)), prepares=False)
    assert memory.starts == {"a": 0}


@pytest.mark.parametrize("kind", NETWORKS)
def test_memory_is_far_less_than_all_layers_together(kind) -> None:
    pytest.importorskip("emx_onnx_cgen", reason="emx-onnx-cgen is not installed: rivals[c].")
    network = generate(shipped(kind)[0])
    sizes = sorted(_floats(shape) for name, shape in network.shapes.items() if name != "scores")
    assert sizes[-1] <= plan(network, True).floats <= min(3 * sizes[-1], sum(sizes))


def _floats(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


NASTY = ['"', "\\", "??/", "*/", "ä\n", "%s", "\x01\x7f", "0", "a\tb", "日本", "\\x41", "', 1"]


def test_any_name_is_a_string_of_c(tmp_path) -> None:
    need("cc")
    lines = "".join(f"    puts({quoted(name)});\n" for name in NASTY)
    (tmp_path / "names.c").write_text(f"#include <stdio.h>\nint main(void) {{\n{lines}}}\n")
    words = ["cc", "-std=c99", "-Wall", "-Werror", tmp_path / "names.c", "-o", tmp_path / "names"]
    subprocess.run(words, check=True)
    printed = subprocess.run([tmp_path / "names"], capture_output=True, check=True).stdout
    assert printed.decode() == "".join(f"{name}\n" for name in NASTY)


MADE = """/* words */
/*
 * OpType: Relu
 */
EMX_NODE_FN void n0(const float x[1][2], float y[1][2]) { }

void network(const float images[1][2], float scores[1][2]) {
    float tmp[1][2];
    n0(images, tmp);
    n0(tmp, scores);
}
"""


def test_another_make_is_refused() -> None:
    shapes = {IMAGE: (1, 2), "scores": (1, 2)}
    network = take_apart(MADE, shapes, 0)
    assert [step.operation for step in network.steps] == ["Relu", "Relu"]
    assert "network(" not in network.layers
    other = [
        MADE.replace("void network", "int network"),
        MADE.replace("float tmp[1][2];", "float *tmp = malloc(8);"),
        MADE.replace("    n0(tmp, scores);", "    foreign(tmp, scores);"),
    ]
    for text in other:
        with pytest.raises(RivalsError, match=r"of another make than expected"):
            take_apart(text, shapes, 0)
