"""The workbook's models and the data to try them on.

`resnet50_v2` and `digits_resnet` give a `Model` in ONNX form; `torch_resnet50_v2` and
`torch_digits_resnet` give the same networks as torch modules. Importing this package imports
neither onnx nor torch.
"""

from .samples import Digits, digits, imagenet_labels, preprocess, sample_image
from .zoo import (
    Model,
    digits_resnet,
    resnet50_v2,
    torch_digits_resnet,
    torch_resnet50_v2,
)

__all__ = [
    "Digits",
    "Model",
    "digits",
    "digits_resnet",
    "imagenet_labels",
    "preprocess",
    "resnet50_v2",
    "sample_image",
    "torch_digits_resnet",
    "torch_resnet50_v2",
]
