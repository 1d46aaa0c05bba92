"""A peer: llama.cpp on the very GGUF file that is measured."""

from functools import partial

from _llamacpp import prepare
from _protocol import at_home, serve

if __name__ == "__main__":
    at_home("llamacpp", "llama_cpp")
    serve(partial(prepare, stored="file"))
