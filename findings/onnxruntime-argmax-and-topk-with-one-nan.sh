#!/usr/bin/env bash
# Guess, written down first: where one logit is NaN, ArgMax and TopK with k = 1 of ONNX Runtime choose the same place,
# wherever the NaN stands, so that greedy search by either goes on alike.
#
# Seen with onnxruntime 1.32.0 on a CPU: TopK takes NaN for the largest number and puts it first. ArgMax chooses a NaN only
# in the first place, and passes over one that comes later. Greedy search by ArgMax thus hides a broken logit, unless it is
# that of the first piece, and a beam search by TopK follows it. (In 1.31.1 TopK had no order with a NaN: of the values 0
# to 9 with a NaN in place of 3 it found 2, 1, 0 and the NaN for k = 4.)
#
# Printed: the places that ArgMax and TopK choose for a NaN in each of ten places. Exits with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
cat > "$folder/nan.py" <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper


def run(operator: str, inputs: dict[str, np.ndarray], outputs: dict[str, int]) -> list[np.ndarray]:
    node = helper.make_node(operator, list(inputs), list(outputs), axis=-1)
    kinds = {"x": TensorProto.FLOAT, "k": TensorProto.INT64}
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info(name, kinds[name], value.shape) for name, value in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def values(count: int, place: int) -> np.ndarray:
    found = np.arange(count, dtype=np.float32)[None].copy()
    found[0, place] = np.nan
    return found


def top(place: int) -> int:
    outputs = {"values": TensorProto.FLOAT, "places": TensorProto.INT64}
    return int(run("TopK", {"x": values(10, place), "k": np.array([1])}, outputs)[1][0, 0])


def highest(place: int) -> int:
    return int(run("ArgMax", {"x": values(10, place)}, {"places": TensorProto.INT64})[0][0, 0])


by_top, by_highest = ([choose(place) for place in range(10)] for choose in (top, highest))
print("TopK with a NaN in place 0 to 9:", by_top)
print("ArgMax with a NaN in place 0 to 9:", by_highest)
raise SystemExit(not (by_top == [*range(10)] and by_highest == [0, *[9] * 8, 8]))
PYTHON
"$folder/venv/bin/python" "$folder/nan.py"
