"""What a chip's own arithmetic makes of a graph: the definition, op by op, on a tape.

Values declared fp16 are fp16 values in fp32 arrays, as everywhere in the engine, and never NaN.
Values declared fp32 are computed in fp32, without a device's rules: of its fp32 nothing is
published.
"""
