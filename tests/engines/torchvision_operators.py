"""Declares the operators that torchvision expects of its compiled part, for a PyTorch that has none."""

import importlib.util

if importlib.util.find_spec("torch") is not None:
    import torch

    LIBRARY = torch.library.Library("torchvision", "DEF")  # declared as long as it is held
    for name in ("nms", "qnms"):
        LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
