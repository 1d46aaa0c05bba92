"""A peer: onnxruntime in fp32."""

from functools import partial

from _onnxruntime import prepare
from _protocol import at_home, serve

if __name__ == "__main__":
    at_home("onnxruntime", "onnx")
    serve(partial(prepare, stored="fp32"))
