# The customer's problem: quantized by PyTorch, a convolution is not what the pattern of a backend
# takes. Two rewrites bring it into the form that TFLite has; then the four passes cut it out.
import sys

import numpy as np
import tvm
from tvm import relay
from tvm.relay import transform
from tvm.relay.dataflow_pattern import (
    DFPatternCallback,
    is_constant,
    is_op,
    rewrite,
    wildcard,
)
from tvm.relay.op.contrib.register import get_pattern_table, register_pattern_table

DTYPES = {"int8": (-128, 127), "int32": (-(2**31), 2**31 - 1)}


@register_pattern_table("npu")
def pattern_table():
    def qnn_conv_pattern():
        pattern = is_op("nn.pad")(wildcard(), wildcard()) | wildcard()
        pattern = is_op("qnn.conv2d")(pattern, *[is_constant() for _ in range(5)])
        pattern = is_op("nn.bias_add")(pattern, is_constant())
        return is_op("qnn.requantize")(pattern, *[is_constant() for _ in range(4)])

    return [("npu.qnn_conv2d", qnn_conv_pattern())]


class QnnQuantizeConstFold(DFPatternCallback):
    def __init__(self, require_type=False):
        super().__init__(require_type)
        self.pattern = is_op("qnn.quantize")(is_constant(), is_constant(), is_constant())

    def callback(self, pre, post, node_map):
        dtype = post.attrs.out_dtype
        if dtype not in DTYPES:
            return post
        data, scale, zero_point = [arg.data.asnumpy() for arg in post.args]
        value = np.around(data.astype("float64") / scale) + zero_point
        return relay.const(np.clip(value, *DTYPES[dtype]).astype(dtype))


class RemoveClipAfterRequantize(DFPatternCallback):
    def __init__(self, require_type=False):
        super().__init__(require_type)
        self.requantize = is_op("qnn.requantize")(*[wildcard() for _ in range(5)])
        self.clip = is_op("clip")(self.requantize)
        self.pattern = is_op("cast")(self.clip)

    def callback(self, pre, post, node_map):
        clip = node_map[self.clip][0]
        if clip.attrs.a_min != 0 or clip.attrs.a_max != 255 or post.attrs.dtype != "uint8":
            return post
        requantize = node_map[self.requantize][0]
        return relay.qnn.op.requantize(
            *requantize.args, axis=requantize.attrs.axis, out_dtype="uint8"
        )


def main(before_path, after_path, cut_path):
    with open(before_path) as file:
        mod = tvm.parser.fromtext(file.read())
    func = mod["main"]
    func = relay.Function(func.params, func.body, None, func.type_params, func.attrs)
    func = rewrite(QnnQuantizeConstFold(), func)
    func = rewrite(RemoveClipAfterRequantize(), func)
    mod = tvm.IRModule.from_expr(func)
    mod = transform.InferType()(mod)
    with open(after_path, "w") as file:
        file.write(mod.astext())
    assert mod["main"].body.op.name == "qnn.requantize"
    assert get_pattern_table("npu")[0][1].match(mod["main"].body)

    seq = tvm.transform.Sequential(
        [
            transform.InferType(),
            transform.MergeComposite(pattern_table()),
            transform.AnnotateTarget("npu"),
            transform.MergeCompilerRegions(),
            transform.PartitionGraph(),
        ]
    )
    with tvm.transform.PassContext(opt_level=3):
        mod = seq(mod)
    with open(cut_path, "w") as file:
        file.write(mod.astext())
    for gvar, function in mod.functions.items():
        print(gvar.name_hint, function.attrs.get("Compiler", "-"))


if __name__ == "__main__":
    main(*sys.argv[1:])
