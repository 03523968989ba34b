"""Language models: decoders of the Llama architecture on a CPU.

`load` compiles a decoder from its weights in the safetensors format, `LanguageModel.generate`
continues prompts, and `LanguageModel.session` gives access to each step.
"""

from .llama import Config
from .model import LanguageModel, Session, load

__all__ = ["Config", "LanguageModel", "Session", "load"]
