#!/usr/bin/env bash
# Guess, written down first: the interpreter of Triton (TRITON_INTERPRET=1), with which kernels are tested without a card,
# converts float32 to bfloat16 and to float8e4nv as PyTorch and the compiled kernel do: to the nearest, ties to even, and
# beyond the largest float8 to that one. tl.sort puts each value of its input somewhere.
#
# Seen with triton 3.9.0 and torch 2.13.0: bfloat16 is cut off, so that 1.0147 becomes 1.0078 in place of 1.0156. In
# float8e4nv ties are rounded away from zero (1.0625 to 1.125, 17 to 18), and 500 becomes 256 in place of 448. tl.sort of
# eight values of which one is NaN loses the NaN and has another value twice.
#
# Printed: each conversion beside that of PyTorch, and the sorted values. Exits with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 triton==3.9.0 numpy==2.4.6
cat > "$folder/kernels.py" <<'PY'
import os

os.environ["TRITON_INTERPRET"] = "1"
import torch
import triton
import triton.language as tl


@triton.jit
def convert(x, to_bfloat16, to_float8, N: tl.constexpr):
    place = tl.arange(0, N)
    value = tl.load(x + place)
    tl.store(to_bfloat16 + place, value.to(tl.bfloat16).to(tl.float32))
    tl.store(to_float8 + place, value.to(tl.float8e4nv).to(tl.float32))


@triton.jit
def sort(x, y, N: tl.constexpr):
    place = tl.arange(0, N)
    tl.store(y + place, tl.sort(tl.load(x + place)))


values = torch.tensor([1.0147, 0.2, 1.0625, 17.0, 500.0, 3.3, -1.01, 448.0])
bfloat16, float8 = torch.empty(8), torch.empty(8)
convert[(1,)](values, bfloat16, float8, 8)
print("float32                 ", values.tolist())
print("bfloat16, interpreter   ", bfloat16.tolist())
print("bfloat16, torch         ", values.to(torch.bfloat16).float().tolist())
print("float8e4nv, interpreter ", float8.tolist())
print("float8e4nv, torch       ", values.to(torch.float8_e4m3fn).float().tolist())
unsorted, found = torch.tensor([3.0, float("nan"), 1.0, 2.0, 7.0, 5.0, 6.0, 4.0]), torch.empty(8)
sort[(1,)](unsorted, found, 8)
print("sorted, interpreter     ", found.tolist())
print("sorted, torch           ", torch.sort(unsorted).values.tolist())
assert bfloat16[:2].tolist() == [1.0078125, 0.19921875]
assert values.to(torch.bfloat16)[:2].tolist() == [1.015625, 0.2001953125]
assert float8[2:5].tolist() == [1.125, 18.0, 256.0]
assert values.to(torch.float8_e4m3fn)[2:5].float().tolist() == [1.0, 16.0, 448.0]
assert found.tolist() == [1.0, 2.0, 3.0, 3.0, 4.0, 5.0, 6.0, 7.0]
PY
"$folder/venv/bin/python" "$folder/kernels.py"
