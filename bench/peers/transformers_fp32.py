"""A peer: transformers in fp32."""

from functools import partial

from _protocol import serve
from _transformers import prepare

if __name__ == "__main__":
    serve(partial(prepare, dtype_name="float32"))
