#!/usr/bin/env bash
# Guess, written down first: where every key of a row is masked, the attention operators of ONNX Runtime agree, either on
# zeros or on the mean of all values, which a softmax of equal scores gives.
#
# Seen with onnxruntime 1.32.0 on a CPU, opset 23: Attention of ONNX gives zeros. MultiHeadAttention of com.microsoft with
# a key padding mask of zeros gives neither: its answer is that without a mask but for rounding, because it adds -10,000
# to every score, which the softmax takes out again. A row of padding alone then reads its padding.
#
# Printed: the first numbers of the answers with no key, with all keys, and the mean of the values. Exits with 1 if that
# changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
cat > "$folder/masks.py" <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper

WIDTH, KEYS = 8, 3
inputs = [
    helper.make_tensor_value_info("query", TensorProto.FLOAT, [1, 1, WIDTH]),
    helper.make_tensor_value_info("key", TensorProto.FLOAT, [1, KEYS, WIDTH]),
    helper.make_tensor_value_info("value", TensorProto.FLOAT, [1, KEYS, WIDTH]),
]
output = [helper.make_tensor_value_info("answer", TensorProto.FLOAT, None)]


def session(node, mask, domains):
    graph = helper.make_graph([node], "graph", [*inputs, mask], output)
    imports = [helper.make_opsetid(name, version) for name, version in domains.items()]
    model = helper.make_model(graph, opset_imports=imports, ir_version=11)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


contributed = session(
    helper.make_node(
        "MultiHeadAttention", ["query", "key", "value", "", "mask"], ["answer"], domain="com.microsoft", num_heads=1
    ),
    helper.make_tensor_value_info("mask", TensorProto.INT32, [1, KEYS]),
    {"": 21, "com.microsoft": 1},
)
standard = session(
    helper.make_node("Attention", ["query", "key", "value", "mask"], ["answer"], q_num_heads=1, kv_num_heads=1),
    helper.make_tensor_value_info("mask", TensorProto.BOOL, [1, 1, 1, KEYS]),
    {"": 23},
)
random = np.random.default_rng(0)
given = {name: random.standard_normal((1, n, WIDTH)).astype("f") for name, n in (("query", 1), ("key", 3), ("value", 3))}


def answer(model, visible: int, kind, shape) -> np.ndarray:
    return model.run(None, {**given, "mask": np.full(shape, visible, kind)})[0].ravel()


theirs = {visible: answer(contributed, visible, np.int32, (1, KEYS)) for visible in (0, 1)}
plain = {visible: answer(standard, visible, bool, (1, 1, 1, KEYS)) for visible in (0, 1)}
mean = given["value"].mean(axis=1).ravel()
print("MultiHeadAttention: no key", theirs[0][:3], "all keys", theirs[1][:3])
print("Attention: no key", plain[0][:3], "all keys", plain[1][:3])
print("mean of the values", mean[:3])
as_without = np.allclose(theirs[0], theirs[1], atol=5e-3) and not np.allclose(theirs[0], mean, atol=5e-2)
raise SystemExit(not (as_without and not plain[0].any() and np.allclose(plain[1], theirs[1], atol=1e-5)))
PYTHON
"$folder/venv/bin/python" "$folder/masks.py"
