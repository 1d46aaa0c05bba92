"""MIL text that means harm, or nothing: a MilError with its place, soon and in little memory."""

from __future__ import annotations

import tracemalloc

import pytest
from calls import calls_of, counting
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orion_ane.errors import MilError
from orion_ane.mil import IOS17, emit, emit_module, parse, parse_graph, written
from orion_ane.mil.lex import MAX_NUMBER, MAX_STRING, MAX_TEXT, Tokens
from orion_ane.mil.names import MAX_NAME
from orion_ane.mil.written import MAX_ELEMENTS
from orion_ane.ops.leaf import MAX_CONST_ELEMENTS

CALLS = 60
"""Calls for a character, at most: a value of four characters takes 130; anything quadratic takes
thousands."""
MEGABYTES = 200

SHORT = """\
func main<ios18>(tensor<fp16, [1,8,1,4]> x, tensor<int32, [2,3]> i, tensor<bool, [4]> m, fp32 s) {
    tensor<fp16, [8,8,1,1]> w = const()[val = tensor<fp16, [8,8,1,1]>(BLOBFILE(path = \
string("@model_path/weights/weight.bin"), offset = uint64(64)))]; // a weight
    tensor<fp16, [1,8,1,4]> a = conv(x=x, weight=w, strides=[1,1], pad_type="valid");
    tensor<fp16, [1,4,1,4]> b, tensor<fp16, [1,4,1,4]> c = split(x=a, axis=1, num_splits=2);
    tensor<fp16, [1,8,1,4]> d = concat(values=(b, c), axis=1, interleave=false);
    tensor<fp16, [1,4,1,4]> e = select(cond=m, a=b, b=-inf);
    tensor<fp16, [1,1,4]> f = reduce_sum(x=e, axes=[-3], keep_dims=false);
    tensor<fp16, [4,1,1]> g = transpose(x=f, perm=[2,0,1]);
    tensor<fp16, [2,2,1]> h = reshape(x=g, shape=[2,-1,0]);
    tensor<fp32, [2,2,1]> k = cast(x=h, dtype="fp32"); /* wide */
    tensor<fp32, [1,1,1]> n = slice_by_index(x=k, begin=[0,1,0], end=[1,2,-1],
        end_mask=[false,false,true]);
    tensor<fp32, [1,1,1]> p = clip(x=n, alpha=0x1p-3, beta=1.5e1);
    tensor<fp32, [1,1,1]> r = rsqrt(x=p, epsilon=fp32(1e-12));
    tensor<fp32, [1,1,3]> u = pad(x=r, pad=[1,1], mode="constant", constant_val=0.0);
    tensor<fp32, [1,1,3]> z = mul(x=u, y=tensor<fp32, [1,1]>([[nan]]));
    tensor<int32, [2,3]> j = add(x=i, y=[[1,2,3]]);
} -> (d, j, z);
"""
TEXTS = (SHORT, emit_module(parse(SHORT)), emit(parse_graph(SHORT), dialect=IOS17).text)
BODY = "(fp16 x) {{ {} }} -> (y);"


def tokens_of(text: str) -> list[str]:
    found, tokens = [], Tokens(text)
    while tokens.next:
        found.append(tokens.next)
        tokens.advance()
    return found


TOKENS = tuple(map(tokens_of, TEXTS))
ODD = ("?", "state<", "()", "[]", '""', "1000000000", "-1", "0", "1e400", "0x1p99999", "inf")
VOCABULARY = sorted({*ODD, *(token for tokens in TOKENS for token in tokens)})


def only_mil_errors(text: str) -> None:
    try:
        module = parse(text)
    except MilError as refused:
        place = (refused.line, refused.column)
        assert None not in place
        return
    try:
        again = emit_module(module)
    except MilError:
        return  # a value that its text could say, and its other text cannot
    assert emit_module(parse(again)) == again


@given(st.text(max_size=300))
@example("\x00")
@example("\ud800")
@example("func main<ios18>(fp16 x) { fp16 y = relu(x=x); } -> (y);\ufeff")
def test_any_text_is_read_or_refused(text):
    only_mil_errors(text)


@given(st.lists(st.sampled_from(VOCABULARY), max_size=60))
def test_any_tokens_are_read_or_refused(tokens):
    only_mil_errors(" ".join(tokens))


@st.composite
def damaged_texts(draw) -> str:
    """A good text with some characters other, gone, or there twice."""
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text) - 1))
        length = draw(st.integers(1, 12))
        put = draw(st.one_of(st.just(""), st.characters(), st.just(text[at : at + 2 * length])))
        text = text[:at] + put + text[at + length :]
    return text


@settings(max_examples=300)
@given(damaged_texts())
def test_a_damaged_text_is_read_or_refused(text):
    only_mil_errors(text)


@st.composite
def shuffled_texts(draw) -> str:
    """A good text with some tokens other, gone, or in another place."""
    tokens = list(draw(st.sampled_from(TOKENS)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(tokens) - 1))
        put = draw(st.one_of(st.none(), st.sampled_from(VOCABULARY), st.sampled_from(tokens)))
        tokens[at : at + draw(st.integers(0, 1))] = [] if put is None else [put]
    return " ".join(tokens)


@settings(max_examples=300)
@given(shuffled_texts())
def test_a_text_with_other_tokens_is_read_or_refused(text):
    only_mil_errors(text)


def test_a_text_is_read_up_to_every_cut():
    for text in TEXTS:
        for end in range(0, len(text) - 4, 29):
            with pytest.raises(MilError):
                parse(text[:end])


def statement(text: str) -> str:
    return "func main<ios18>" + BODY.format(text)


FAR = 10_000
MANY = 2000
HOSTILE = {
    "open brackets": "[" * FAR,
    "nested lists": statement(f"fp16 y = add(x=x, y={'[' * FAR});"),
    "nested tuples": statement(f"fp16 y = add(x={'(' * FAR});"),
    "nested types": statement("list<" * FAR),
    "nested references": statement("fp16 y = const()[val=" + "fp16(BLOBFILE(path=" * FAR),
    "nested dicts": "program(1.3)[a = " + "dict<" * FAR,
    "a deep shape": statement(f"tensor<fp16, [{'1,' * FAR}"),
    "a huge type": statement("").replace("fp16 x", f"tensor<fp16, [1{',1000000000' * 4}]> x"),
    "a huge size": statement(f"tensor<fp16, [{'9' * FAR}]> y = relu(x=x);"),
    "a huge integer": statement(f"fp16 y = add(x=x, y={'9' * FAR});"),
    "a huge float": statement(f"fp16 y = add(x=x, y=0.{'9' * FAR});"),
    "a huge hex float": statement(f"fp16 y = add(x=x, y=0x1.{'f' * FAR}p+1);"),
    "a huge exponent": statement("fp16 y = add(x=x, y=1e" + "9" * 60 + ");"),
    "a long name": statement(f"fp16 {'y' * FAR} = relu(x=x);"),
    "a long op": statement(f"fp16 y = {'y' * FAR}(x=x);"),
    "a long string": statement(f'fp16 y = cast(x=x, dtype="{"a" * FAR}");'),
    "an open string": statement('fp16 y = cast(x=x, dtype="' + '\\"' * FAR),
    "open strings": '"\n' * FAR,
    "open comments": "/*" * FAR,
    "a comment without end": "/" + "*" * FAR,
    "half comments": "/ *" * FAR,
    "spaces": " " * FAR,
    "new lines": "\n" * FAR,
    "comments": "/**/" * FAR,
    "signs": "-" * FAR,
    "many splits": statement("fp16 y = split(x=x, axis=0, num_splits=1073741824);").replace(
        "fp16 x", "tensor<fp16, [1073741824]> x"
    ),
    "a shape of many sizes": statement(f"fp16 y = reshape(x=x, shape=[{'2,' * FAR}2]);"),
    "many axes": statement(f"fp16 y = reduce_sum(x=x, axes=[{'0,' * FAR}0], keep_dims=true);"),
    "many untyped values": statement(f"fp16 y = concat(axis=0, values=({'1.0,' * MANY}1.0));"),
    "many values typed by another": statement(
        f"fp16 y = concat(axis=0, values=({'1.0,' * MANY}x));"
    ),
    "a pad without end": statement("fp16 y = pad(x=x, pad=[0,2147483647]);").replace(
        "fp16 x", "tensor<fp16, [2147483647,2147483647]> x"
    ),
    "ragged rows": statement(f"fp16 y = add(x=x, y=[{'[1],' * FAR}1]);"),
    "many functions": "func a<ios18>(fp16 x) { } -> (x);" * 10_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_is_refused_soon_and_in_little_memory(name):
    text = HOSTILE[name]
    tracemalloc.start()
    try:
        with counting() as calls, pytest.raises(MilError) as refused:
            parse(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert calls.count < CALLS * len(text) + 10_000
    assert peak < MEGABYTES * 1e6
    assert len(str(refused.value)) < 2000


def test_a_limit_is_named():
    with pytest.raises(MilError, match=f"text too long: got {MAX_TEXT + 1}, want at most"):
        parse(" " * (MAX_TEXT + 1))
    for text, says in [
        ("a huge integer", f"number too long: want at most {MAX_NUMBER} characters"),
        ("a long name", f"name too long: got {FAR}, want at most {MAX_NAME} characters"),
        ("a long string", f"string too long: want at most {MAX_STRING} characters"),
        ("a deep shape", "rank too high: want at most 5"),
        ("a huge type", "too many elements"),
        ("nested lists", "lists nested too deep: want at most 5"),
        ("many splits", "split: wrong number of results: got 1, want 1073741824"),
    ]:
        with pytest.raises(MilError, match=says):
            parse(HOSTILE[text])


@pytest.mark.parametrize("space", ["", "/**/"], ids=["plain", "odd"])
def test_a_constant_is_bounded_and_all_are_together(space, monkeypatch):
    assert MAX_CONST_ELEMENTS < MAX_ELEMENTS < 1e7
    monkeypatch.setattr(written, "MAX_CONST_ELEMENTS", 100)
    monkeypatch.setattr(written, "MAX_ELEMENTS", 250)
    data = ",".join(["1"] * 100)
    with pytest.raises(MilError, match="constant too long: want at most 100"):
        parse(statement(f"fp16 y = add(x=x, y=[{space}1,{data}]);"))
    rows = [f"tensor<int32, [100]> v{i} = const()[val=[{space}{data}]];" for i in range(3)]
    assert parse(statement("".join([*rows[:2], "fp16 y = relu(x=x);"])))
    with pytest.raises(MilError, match="too many constants in the text: want 250 elements"):
        parse(statement("".join(rows)))


def chain(count: int) -> str:
    """A program of many statements, each on the one before."""
    lines = ["fp16 y0 = relu(x=x);"]
    lines += [f'fp16 y{i} = add(x=y{i - 1}, y=x)[name = string("y{i}")];' for i in range(1, count)]
    return f"func main<ios18>(fp16 x) {{ {' '.join(lines)} }} -> (y{count - 1});"


def test_the_work_grows_as_the_text_does():
    def calls(count: int) -> int:
        text = chain(count)
        return calls_of(lambda: emit(parse_graph(text)))

    calls(100)
    assert calls(5000) < 11 * calls(500)


@pytest.mark.parametrize("end", [" ", "\n"], ids=["one line", "lines"])
def test_many_faults_are_placed_in_one_pass(end):
    lines = (f"fp16 y{i} = nope(x=x);" for i in range(5_000))
    text = f"func main<ios18>(fp16 x) {{{end}{end.join(lines)}{end}}} -> (y0);"
    with counting() as calls:
        found = parse(text, tolerant=True).functions["main"].statements
    assert calls.count < CALLS * len(text)
    last = found[-1].problem
    offset = text.index("fp16 y4999")  # the statement that it is in
    assert last.line == text.count("\n", 0, offset) + 1
    assert last.column == offset - text.rfind("\n", 0, offset)


def test_one_long_constant_used_by_many_statements_is_read_once():
    data = ",".join(["1"] * 100_000)
    uses = " ".join(f"tensor<fp16, [100000]> y{i} = add(x=x, y=v);" for i in range(2000))
    text = (
        "func main<ios18>(tensor<fp16, [100000]> x) { tensor<fp16, [100000]> v = "
        f"const()[val=tensor<fp16, [100000]>([{data}])]; {uses} }} -> (y0);"
    )
    assert calls_of(lambda: parse(text)) < 5 * len(text)
