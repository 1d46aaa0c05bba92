"""A peer: llama.cpp on matrices of Q8_0, the same random weights or the same GGUF file's."""

from functools import partial

from _llamacpp import prepare
from _protocol import at_home, serve

if __name__ == "__main__":
    at_home("llamacpp", "llama_cpp")
    serve(partial(prepare, stored="q8_0"))
