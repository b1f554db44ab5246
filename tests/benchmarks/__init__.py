"""Speed and memory beside the peers."""

from calibration.models.backbones.torchvision_models import complete_torchvision

complete_torchvision()  # torchmetrics imports torchvision
