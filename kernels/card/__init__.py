"""The kernels of the operators on CUDA, in Triton, and the script that compiles them ahead of time.

It is no part of the installed package: a server loads the compiled archive, and needs no Triton.

The bits of a row depend neither on the other rows of a launch nor on its place in a tile. So every sum has a fixed
order, no kernel uses atomics, no product divides its K among programs, and no tile has 64 rows, for which sm_90 has
other matrix instructions (wgmma) with other bits.

Types in docstrings: h float16, f float32, i int32, l int64. R rows of a step, T tokens of an encoder run, S sentences.
"""
