"""Models that see: image classifiers, segmentation, filters, measures of likeness."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from assay.harness.case import Case, Made
from assay.suites.libraries.row import library, row


def images(batch: int = 4, channels: int = 3, side: int = 32) -> Tensor:
    """Shapes: -> images[batch, channels, side, side]."""
    return torch.randn(batch, channels, side, side)


def _timm(name: str, settings: Mapping[str, Any], side: int) -> Made:
    import timm

    return timm.create_model(name, num_classes=10, **settings), (images(side=side),), {}


TIMM: dict[str, tuple[Mapping[str, Any], int]] = {
    "test_resnet": ({}, 32),
    "test_efficientnet": ({}, 32),
    "test_byobnet": ({}, 32),
    "test_convnext": ({}, 32),
    "test_nfnet": ({}, 32),
    "test_mambaout": ({}, 32),
    "test_maxvit": ({"img_size": 64}, 64),
    "test_coatnet": ({"img_size": 64}, 64),
    "test_vit_relpos": ({"img_size": 32}, 32),
    "test_vit3": ({"img_size": 32}, 32),
    "swin_tiny_patch4_window7_224": ({
        "img_size": 32, "patch_size": 2, "window_size": 4, "embed_dim": 16, "depths": (2, 2), "num_heads": (2, 4),
        "drop_path_rate": 0.0,
    }, 32),
    "cait_xxs24_224": ({"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4}, 32),
    "xcit_nano_12_p16_224": ({"img_size": 32, "embed_dim": 32, "depth": 2, "num_heads": 4}, 32),
    "sequencer2d_s": ({"img_size": 32, "layers": (1, 1, 1, 1), "embed_dims": (16, 16, 16, 16)}, 32),
    "levit_128s": ({"img_size": 64, "embed_dim": (16, 32, 48), "depth": (1, 1, 1), "num_heads": (2, 2, 2)}, 64),
    "densenet121": ({"growth_rate": 8, "block_config": (2, 2, 2)}, 32),
}  # fmt: skip
"""Architectures of timm, with what makes them tiny and the side of their images."""

timm_models: list[Case] = [
    row("timm", name, functools.partial(_timm, name, settings, side), tags=("image",))
    for name, (settings, side) in TIMM.items()
]


@library("torchvision", tags=("image",))
def shufflenet() -> Made:
    """Channels shuffled between grouped convolutions."""
    from torchvision.models.shufflenetv2 import ShuffleNetV2

    return ShuffleNetV2([1, 1, 1], [8, 16, 32, 64, 64], num_classes=10), (images(8),), {}


@library("torchvision", tags=("image",))
def segmenter() -> Made:
    """Atrous convolutions resized to the image: a class for every pixel."""
    from torchvision.models.mobilenetv3 import mobilenet_v3_small
    from torchvision.models.segmentation.lraspp import _lraspp_mobilenetv3

    return _lraspp_mobilenetv3(mobilenet_v3_small(dilated=True, width_mult=0.35), 5), (images(8, side=64),), {}


@library("efficientnet_pytorch", tags=("image", "dropout"))
def b0() -> Made:
    """Squeeze and excitation, memory-efficient swish as a custom function, drop connect."""
    from efficientnet_pytorch import EfficientNet
    from efficientnet_pytorch.utils import BlockDecoder, GlobalParams

    blocks = BlockDecoder.decode(["r1_k3_s11_e1_i32_o8_se0.25", "r2_k3_s22_e2_i8_o16_se0.25"])
    settings = GlobalParams(
        width_coefficient=1.0, depth_coefficient=1.0, image_size=32, dropout_rate=0.2, num_classes=10,
        batch_norm_momentum=0.99, batch_norm_epsilon=1e-3, drop_connect_rate=0.2, depth_divisor=8, min_depth=None,
        include_top=True,
    )  # fmt: skip
    return EfficientNet(blocks, settings), (images(),), {}


@library("vit_pytorch", tags=("image",))
def simple_vit() -> Made:
    """Patches by einops, sines for positions."""
    from vit_pytorch import SimpleViT

    return SimpleViT(image_size=32, patch_size=8, num_classes=10, dim=32, depth=2, heads=2, mlp_dim=64), (images(),), {}


@library("vit_pytorch", tags=("image",))
def cct() -> Made:
    """Convolutions as tokens, pooled by attention."""
    from vit_pytorch.cct import CCT

    vit = CCT(
        img_size=32, embedding_dim=32, n_conv_layers=1, kernel_size=7, stride=2, padding=3, num_layers=2, num_heads=2,
        mlp_ratio=2.0, num_classes=10, positional_embedding="learnable", dropout_rate=0.0, attention_dropout=0.0,
        stochastic_depth_rate=0.0,
    )  # fmt: skip
    return vit, (images(),), {}


@library("segment_anything", tags=("image",))
def sam() -> Made:
    """An image encoder with relative positions in windows, a prompt's points, and two-way attention to masks."""
    from segment_anything.modeling import ImageEncoderViT, MaskDecoder, PromptEncoder, TwoWayTransformer

    encoder = ImageEncoderViT(
        img_size=64, patch_size=8, embed_dim=32, depth=2, num_heads=2, out_chans=16, use_rel_pos=True, window_size=3,
        global_attn_indexes=(1,),
    )  # fmt: skip
    prompt = PromptEncoder(embed_dim=16, image_embedding_size=(8, 8), input_image_size=(64, 64), mask_in_chans=4)
    two_way = TwoWayTransformer(depth=2, embedding_dim=16, num_heads=2, mlp_dim=32)
    decoder = MaskDecoder(transformer_dim=16, transformer=two_way, iou_head_hidden_dim=16)
    points = torch.rand(1, 3, 2) * 64, torch.tensor([[0, 1, 1]])
    return _Segment(encoder, prompt, decoder), (images(1, side=64), *points), {}


class _Segment(torch.nn.Module):
    """masks[n, m, h, w] and their quality, for one image and the points of a prompt."""

    def __init__(self, encoder: torch.nn.Module, prompt: Any, decoder: torch.nn.Module) -> None:
        super().__init__()
        self.encoder, self.prompt, self.decoder = encoder, prompt, decoder

    def forward(self, image: Tensor, points: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        sparse, dense = self.prompt(points=(points, labels), boxes=None, masks=None)
        return self.decoder(
            image_embeddings=self.encoder(image),
            image_pe=self.prompt.get_dense_pe(),
            sparse_prompt_embeddings=sparse,
            dense_prompt_embeddings=dense,
            multimask_output=True,
        )  # type: ignore[no-any-return]


@library("segmentation_models_pytorch", tags=("image",))
def unet() -> Made:
    """A decoder with skip connections over a residual encoder."""
    from segmentation_models_pytorch import Unet

    model = Unet("resnet18", encoder_depth=3, encoder_weights=None, decoder_channels=(32, 16, 8), classes=3)
    return model, (images(2, side=32),), {}


@library("segmentation_models_pytorch", tags=("image",))
def dice_loss() -> Made:
    """Dice, focal and Lovasz losses of one prediction."""
    from segmentation_models_pytorch.losses import DiceLoss, FocalLoss, LovaszLoss

    losses = DiceLoss("multiclass"), FocalLoss("multiclass"), LovaszLoss("multiclass")
    logits, labels = torch.randn(2, 4, 8, 8, requires_grad=True), torch.randint(4, (2, 8, 8))
    return lambda logits, labels: [loss(logits, labels) for loss in losses], (logits, labels), {}


@library("open_clip", tags=("image", "text"))
def clip() -> Made:
    """Two towers of different depth, features normalized, a learned temperature."""
    from open_clip.model import CLIP

    vision = {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8}
    text = {"context_length": 16, "vocab_size": 100, "width": 32, "heads": 2, "layers": 2}
    tokens = torch.randint(1, 99, (4, 16))
    return CLIP(32, vision_cfg=vision, text_cfg=text), (images(), tokens), {}


@library("kornia", tags=("image",))
def edges() -> Made:
    """Blur, Sobel and Laplacian filters, unsharp masks, and a median."""
    from kornia import filters

    def detect(image: Tensor) -> tuple[Tensor, ...]:
        blurred = filters.gaussian_blur2d(image, (5, 5), (1.5, 1.5))
        sharp = filters.unsharp_mask(image, (3, 3), (1.0, 1.0))
        return filters.sobel(blurred), filters.laplacian(image, 3), sharp, filters.median_blur(image, (3, 3))

    return detect, (torch.rand(2, 3, 16, 16, requires_grad=True),), {}


@library("kornia", tags=("image",))
def colors() -> Made:
    """There and back through HSV, Lab, YCbCr and Luv."""
    from kornia import color

    def convert(image: Tensor) -> tuple[Tensor, ...]:
        back = color.hsv_to_rgb(color.rgb_to_hsv(image)), color.lab_to_rgb(color.rgb_to_lab(image))
        return *back, color.ycbcr_to_rgb(color.rgb_to_ycbcr(image)), color.rgb_to_luv(image)

    return convert, (torch.rand(2, 3, 8, 8, requires_grad=True) * 0.8 + 0.1,), {}


@library("kornia", tags=("image",))
def warp() -> Made:
    """A rotation and a perspective by sampling a grid."""
    from kornia.geometry import transform

    def move(image: Tensor, angle: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
        return transform.rotate(image, angle), transform.warp_perspective(image, matrix, (16, 16))

    matrix = torch.eye(3).expand(2, 3, 3) + 0.01 * torch.randn(2, 3, 3)
    angle = torch.tensor([30.0, -10.0], requires_grad=True)
    return move, (torch.rand(2, 3, 16, 16, requires_grad=True), angle, matrix), {}


@library("kornia", tags=("image",))
def corners() -> Made:
    """Harris and GFTT responses, and a soft argmax over them."""
    from kornia import feature
    from kornia.geometry.subpix import spatial_soft_argmax2d

    def find(image: Tensor) -> tuple[Tensor, Tensor]:
        response = feature.harris_response(image) + feature.gftt_response(image)
        return response, spatial_soft_argmax2d(response)

    return find, (torch.rand(2, 1, 16, 16, requires_grad=True),), {}


@library("pytorch_msssim", tags=("image",))
def ssim() -> Made:
    """Structural likeness at one scale and at several."""
    from pytorch_msssim import MS_SSIM, SSIM

    one, many = SSIM(data_range=1.0, channel=3), MS_SSIM(data_range=1.0, channel=3, win_size=3)
    first, second = torch.rand(2, 3, 48, 48, requires_grad=True), torch.rand(2, 3, 48, 48)
    return lambda x, y: (one(x, y), many(x, y)), (first, second), {}


@library("piq", tags=("image",))
def likeness() -> Made:
    """Measures by gradients, wavelets and phases."""
    import piq

    def measure(first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
        return piq.gmsd(first, second), piq.haarpsi(first, second), piq.multi_scale_gmsd(first, second)

    return measure, (torch.rand(2, 3, 32, 32, requires_grad=True), torch.rand(2, 3, 32, 32)), {}


@library("monai", tags=("image",))
def unet3d() -> Made:
    """Residual units in three dimensions, up by transposed convolutions."""
    from monai.networks.nets import UNet

    model = UNet(spatial_dims=3, in_channels=1, out_channels=2, channels=(4, 8, 16), strides=(2, 2), num_res_units=1)
    return model, (torch.randn(2, 1, 16, 16, 16),), {}


@library("monai", tags=("image",))
def swin_unetr() -> Made:
    """Shifted windows in three dimensions beneath a convolutional decoder."""
    from monai.networks.nets import SwinUNETR

    model = SwinUNETR(
        in_channels=1, out_channels=2, feature_size=12, depths=(1, 1, 1, 1), num_heads=(1, 1, 2, 2), window_size=2,
        spatial_dims=2,
    )  # fmt: skip
    return model, (images(1, 1, 64),), {}


@library("monai", tags=("image",))
def segresnet() -> Made:
    """Group norms, residual blocks, upsampling without parameters."""
    from monai.networks.nets import SegResNet

    model = SegResNet(spatial_dims=2, init_filters=8, blocks_down=(1, 1), blocks_up=(1,), dropout_prob=None)
    return model, (images(2, 1, 16),), {}


@library("monai", tags=("image",))
def losses() -> Made:
    """Dice with cross entropy, focal and Tversky losses, and a distance of surfaces by mutual information."""
    from monai.losses import DiceCELoss, FocalLoss, GlobalMutualInformationLoss, TverskyLoss

    kinds = (
        DiceCELoss(to_onehot_y=True, softmax=True), FocalLoss(to_onehot_y=True), TverskyLoss(to_onehot_y=True),
    )  # fmt: skip
    alike = GlobalMutualInformationLoss()

    def judge(logits: Tensor, labels: Tensor) -> list[Tensor]:
        found = [loss(logits, labels) for loss in kinds]
        return [*found, alike(logits.sigmoid(), labels.expand_as(logits).float())]

    return judge, (torch.randn(2, 3, 8, 8, requires_grad=True), torch.randint(3, (2, 1, 8, 8))), {}
