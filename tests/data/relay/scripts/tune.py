# Tuning as it was in 2021: modules import; the first name that is used says what became of it.
import sys

import tvm
from helper_beside import batch_size
from tvm import autotvm

print(__name__, sys.argv[1:], batch_size, "autotvm" in dir(), tvm.__name__)


def tuning_option(number):
    return autotvm.measure_option(
        builder=autotvm.LocalBuilder(), runner=autotvm.LocalRunner(number=number)
    )


tuning_option(10)
print("not reached")
