"""The workbook's models, with data to run them on.

`resnet50_v2`, `resnet18_v2`, `mobilenet_v2` and `digits_resnet` return a `Model` in ONNX form, and
`torch_form.of` turns a `Model` into a torch module. Importing this package imports neither onnx nor
torch.
"""

from .onnx_form import Model
from .samples import Digits, digits, imagenet_labels, preprocess, sample_image
from .zoo import digits_resnet, mobilenet_v2, resnet18_v2, resnet50_v2, torch_digits_resnet

__all__ = [
    "Digits",
    "Model",
    "digits",
    "digits_resnet",
    "imagenet_labels",
    "mobilenet_v2",
    "preprocess",
    "resnet18_v2",
    "resnet50_v2",
    "sample_image",
    "torch_digits_resnet",
]
