"""Instruments for the questions that one step leaves open; each works on the live system and leaves it as it was.

| question | instrument |
| --- | --- |
| Can the training system fit a few rows at all, and can plain SGD? | `tiny_batch` |
| Which regularizer keeps it from fitting them? | `capability` |
| Which layer stops telling the inputs apart? | `activation_statistics` |
| Do the steps outgrow the parameters? | `update_scale` |
| Where does the first NaN or infinity come from? | `first_nonfinite` |
| Is it the learning rate? | `learning_rates` |
| Does a step of plain SGD move parameters by minus rate times gradient? | `sgd_equation` |
| How far does the real optimizer go for the gradient it gets? | `update_ratios` |
| What do gradients look like that nobody clears? | `accumulation` |

`print` a result for its table; `dataclasses.asdict` gives plain values. What the model or the loss raises passes
through, after everything was put back.
"""

from weaklink.collector.declared import Fit
from weaklink.collector.probes.accumulating import Accumulation, accumulation
from weaklink.collector.probes.activations import Activation, Activations, activation_statistics
from weaklink.collector.probes.equation import SgdEquation, sgd_equation
from weaklink.collector.probes.nonfinite import FirstNonfinite, Operation, Stage, first_nonfinite
from weaklink.collector.probes.rates import LearningRates, RateTrial, learning_rates
from weaklink.collector.probes.ratios import UpdateRatio, UpdateRatios, update_ratios
from weaklink.collector.probes.regularizers import Capability, Removal, capability
from weaklink.collector.probes.scale import ScaleStep, UpdateScale, update_scale
from weaklink.collector.probes.tiny import TinyBatch, tiny_batch

__all__ = [
    "Accumulation",
    "Activation",
    "Activations",
    "Capability",
    "FirstNonfinite",
    "Fit",
    "LearningRates",
    "Operation",
    "RateTrial",
    "Removal",
    "ScaleStep",
    "SgdEquation",
    "Stage",
    "TinyBatch",
    "UpdateRatio",
    "UpdateRatios",
    "UpdateScale",
    "accumulation",
    "activation_statistics",
    "capability",
    "first_nonfinite",
    "learning_rates",
    "sgd_equation",
    "tiny_batch",
    "update_ratios",
    "update_scale",
]
