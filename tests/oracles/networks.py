"""The workbook's networks run by their peers, and files as the model zoo writes them."""

from __future__ import annotations

import hashlib

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import helper, numpy_helper

from tvmlab.models import onnx_form, torch_form
from tvmlab.models.architecture import Parameters
from tvmlab.models.resnet import ResNetV2

TINY = ResNetV2("tiny", (3, 32, 32), 7, "bottleneck", (1, 2), (8, 16, 32))


def session(proto: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def by_onnxruntime(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    [value] = session(proto).run(None, {onnx_form.graph_input(proto).name: x})
    return value


def by_torch(network: torch_form.Network, x: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return network(torch.from_numpy(x)).numpy()


def relative_error(value: np.ndarray, reference: np.ndarray) -> float:
    return float(np.abs(value - reference).max() / np.abs(reference).max())


def digest(parameters: Parameters) -> str:
    total = hashlib.sha256()
    for name, value in parameters.items():
        total.update(name.encode() + value.astype("<f4").tobytes())
    return total.hexdigest()[:16]


def as_the_zoo_writes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Rewrite a model the way files of 2018 are.

    Other names, weights among the inputs, a clip's limits as attributes, opset 7.
    """
    old = onnx.ModelProto()
    old.CopyFrom(proto)
    graph = old.graph
    weights = {tensor.name for tensor in graph.initializer}

    def name(mine: str) -> str:
        known = {"data": "data", "logits": "resnetv24_dense0_fwd"}
        kind = "param" if mine in weights else "fwd"
        return known.get(mine, f"resnetv24_{hashlib.md5(mine.encode()).hexdigest()[:8]}_{kind}")

    limits = {node.output[0]: node for node in graph.node if node.op_type == "Constant"}
    for node in list(graph.node):
        if node.op_type == "Constant":
            graph.node.remove(node)
            continue
        if node.op_type == "Clip":
            for attribute, limit in zip(("min", "max"), node.input[1:], strict=True):
                value = numpy_helper.to_array(limits[limit].attribute[0].t).item()
                node.attribute.append(helper.make_attribute(attribute, value))
            del node.input[1:]
        node.input[:] = [name(mine) for mine in node.input]
        if node.op_type == "Add":  # the zoo's operands stand in no promised order
            node.input[:] = list(node.input)[::-1]
        node.output[:] = [name(mine) for mine in node.output]
        node.name = f"{node.name}_fwd"
        if node.op_type == "Conv":
            node.attribute.append(helper.make_attribute("dilations", [1, 1]))
            if all(attribute.name != "group" for attribute in node.attribute):
                node.attribute.append(helper.make_attribute("group", 1))
        if node.op_type == "BatchNormalization":
            node.attribute.append(helper.make_attribute("momentum", 0.9))
    for tensor in graph.initializer:
        tensor.name = name(tensor.name)
        graph.input.append(helper.make_tensor_value_info(tensor.name, 1, tensor.dims))
    graph.output[0].name = "resnetv24_dense0_fwd"
    old.ir_version = 3
    old.opset_import[0].version = 7
    return old
