"""A peer: transformers in fp16."""

from functools import partial

from _protocol import serve
from _transformers import prepare

if __name__ == "__main__":
    serve(partial(prepare, dtype_name="float16"))
