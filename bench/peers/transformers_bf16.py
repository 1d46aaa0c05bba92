"""A peer: transformers in bf16."""

from functools import partial

from _protocol import serve
from _transformers import prepare

if __name__ == "__main__":
    serve(partial(prepare, dtype_name="bfloat16"))
