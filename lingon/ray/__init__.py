"""Lingon on a Ray cluster: the gRPC service on Ray Serve, and what translates a dataset of Ray Data.

serve run lingon.ray:app models=models/en-de
dataset.map_batches(lingon.ray.Translate, fn_constructor_kwargs={...}, batch_format="pyarrow", compute=...)
"""

from lingon.bulk.translating import Translate as Translate
from lingon.ray.serve import app as app
