# ruff: noqa: NPY002, UP031
# A script as TVM 0.8's tutorial taught to write it: import a network from ONNX, build it, run it on
# a picture, print the likeliest classes and the time of a run.
import sys
import timeit

import numpy as np
import onnx
import tvm
import tvm.relay as relay
from scipy.special import softmax
from tvm.contrib import graph_executor

np.random.seed(0)
model_path, picture_path, result_path = sys.argv[1:]
onnx_model = onnx.load(model_path)
img_data = np.load(picture_path)

target = "llvm -mcpu=x86-64"
input_name = onnx_model.graph.input[0].name
shape_dict = {input_name: img_data.shape}

mod, params = relay.frontend.from_onnx(onnx_model, shape_dict)
print("convolutions:", mod.astext(show_meta_data=False).count("nn.conv2d("))

with tvm.transform.PassContext(opt_level=3):
    lib = relay.build(mod, target=target, params=params)

dev = tvm.device("llvm", 0)
module = graph_executor.GraphModule(lib["default"](dev))

dtype = "float32"
module.set_input(input_name, tvm.nd.array(img_data.astype(dtype)))
module.run()
output_shape = (1, 10)
tvm_output = module.get_output(0, tvm.nd.empty(output_shape)).asnumpy()
np.save(result_path, tvm_output)

timing_number = 2
timing_repeat = 2
unoptimized = (
    np.array(timeit.Timer(lambda: module.run()).repeat(repeat=timing_repeat, number=timing_number))
    * 1000
    / timing_number
)
unoptimized = {"mean": np.mean(unoptimized), "median": np.median(unoptimized)}
assert unoptimized["mean"] > 0

scores = np.squeeze(softmax(tvm_output))
ranks = np.argsort(scores)[::-1]
for rank in ranks[0:5]:
    print("class='%s' with probability=%f" % (rank, scores[rank]))
