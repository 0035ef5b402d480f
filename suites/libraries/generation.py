"""Models that draw: diffusion networks, transformers over latents, autoencoders, quantizers."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.harness.case import Made
from assay.suites.libraries.row import library


@library("diffusers", tags=("image",))
def unet() -> Made:
    """Residual blocks conditioned on a step, with attention in the middle."""
    from diffusers import UNet2DModel

    model = UNet2DModel(
        sample_size=16, in_channels=3, out_channels=3, block_out_channels=(8, 16), layers_per_block=1,
        norm_num_groups=4, attention_head_dim=8, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    return model, (torch.randn(2, 3, 16, 16), torch.tensor([3, 7])), {"return_dict": False}


@library("diffusers", tags=("image", "text"))
def unet_condition() -> Made:
    """The network of Stable Diffusion: attention to a sentence in every block."""
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=8, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, cross_attention_dim=16,
        attention_head_dim=4, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip
    inputs = torch.randn(2, 4, 8, 8), torch.tensor([3, 7]), torch.randn(2, 5, 16)
    return model, inputs, {"return_dict": False}


@library("diffusers", tags=("image",))
def autoencoder_kl() -> Made:
    """An autoencoder with attention; the mode of its posterior is decoded."""
    from diffusers import AutoencoderKL

    model = AutoencoderKL(
        block_out_channels=(8, 16), down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4, norm_num_groups=4,
    )  # fmt: skip
    return model, (torch.randn(2, 3, 16, 16),), {"return_dict": False}


@library("diffusers", tags=("image",))
def vq_model() -> Made:
    """Latents looked up in a codebook, straight through."""
    from diffusers import VQModel

    model = VQModel(
        block_out_channels=(8, 16), down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=4, num_vq_embeddings=16,
    )  # fmt: skip
    return model, (torch.randn(2, 3, 16, 16),), {"return_dict": False}


@library("diffusers", tags=("image", "text"))
def sd3() -> Made:
    """Joint attention over latents and text, adaptive norms."""
    from diffusers import SD3Transformer2DModel

    model = SD3Transformer2DModel(
        sample_size=8, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=2,
        joint_attention_dim=16, caption_projection_dim=16, pooled_projection_dim=16, out_channels=4,
        pos_embed_max_size=8,
    )  # fmt: skip
    given = {
        "hidden_states": torch.randn(2, 4, 8, 8),
        "encoder_hidden_states": torch.randn(2, 5, 16),
        "pooled_projections": torch.randn(2, 16),
        "timestep": torch.tensor([3, 7]),
        "return_dict": False,
    }
    return model, (), given


@library("diffusers", tags=("image", "text"))
def flux() -> Made:
    """Double and single stream blocks with rotary positions in three axes."""
    from diffusers import FluxTransformer2DModel

    model = FluxTransformer2DModel(
        patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=16, pooled_projection_dim=16, axes_dims_rope=(4, 4, 8),
    )  # fmt: skip
    given = {
        "hidden_states": torch.randn(1, 16, 4),
        "encoder_hidden_states": torch.randn(1, 5, 16),
        "pooled_projections": torch.randn(1, 16),
        "timestep": torch.tensor([0.5]),
        "img_ids": torch.randint(4, (16, 3)),
        "txt_ids": torch.zeros(5, 3),
        "guidance": None,
        "return_dict": False,
    }
    return model, (), given


@library("diffusers", tags=("image",))
def dit() -> Made:
    """Adaptive layer norms from a step and a class."""
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=4, num_layers=2, sample_size=8,
        patch_size=2, num_embeds_ada_norm=10, norm_num_groups=4,
    )  # fmt: skip
    given = {"timestep": torch.tensor([3, 7]), "class_labels": torch.tensor([1, 2]), "return_dict": False}
    return model.eval(), (torch.randn(2, 4, 8, 8),), given


@library("diffusers", tags=("image",))
def sana() -> Made:
    """Linear attention and gated depthwise convolutions."""
    from diffusers import SanaTransformer2DModel

    model = SanaTransformer2DModel(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=8, num_layers=2,
        num_cross_attention_heads=2, cross_attention_head_dim=8, cross_attention_dim=16, caption_channels=16,
        sample_size=8, patch_size=1,
    )  # fmt: skip
    given = {
        "encoder_hidden_states": torch.randn(2, 5, 16), "timestep": torch.tensor([3, 7]), "return_dict": False,
    }  # fmt: skip
    return model, (torch.randn(2, 4, 8, 8),), given


@library("diffusers", tags=("audio",))
def unet1d() -> Made:
    """A network over sound, with Fourier features of the step."""
    from diffusers import UNet1DModel

    model = UNet1DModel(
        sample_size=64, in_channels=2, out_channels=2, extra_in_channels=64, block_out_channels=(32, 32, 64),
    )  # fmt: skip
    return model, (torch.randn(2, 2, 64), torch.tensor([3, 7])), {"return_dict": False}


@library("denoising_diffusion_pytorch", tags=("image", "random"))
def gaussian() -> Made:
    """A training loss: noise is drawn, added and predicted."""
    from denoising_diffusion_pytorch import GaussianDiffusion, Unet

    network = Unet(dim=8, dim_mults=(1, 2), flash_attn=False, attn_dim_head=8, attn_heads=2)
    return GaussianDiffusion(network, image_size=16, timesteps=10), (torch.rand(2, 3, 16, 16),), {}


@library("vector_quantize_pytorch", tags=("buffers",))
def vector_quantize() -> Made:
    """A codebook that follows its vectors by exponential averages."""
    from vector_quantize_pytorch import VectorQuantize

    return VectorQuantize(dim=16, codebook_size=32, decay=0.8, commitment_weight=1.0), (_vectors(),), {}


@library("vector_quantize_pytorch", tags=("buffers",))
def vector_quantize_learned() -> Made:
    """A codebook of parameters, several heads."""
    from vector_quantize_pytorch import VectorQuantize

    quantizer = VectorQuantize(
        dim=16, codebook_size=32, heads=2, codebook_dim=8, separate_codebook_per_head=True, 
        learnable_codebook=True, ema_update=False,
    )  # fmt: skip
    return quantizer, (_vectors(),), {}


@library("vector_quantize_pytorch", tags=("buffers",))
def residual() -> Made:
    """Quantizers of what the earlier ones leave."""
    from vector_quantize_pytorch import ResidualVQ

    return ResidualVQ(dim=16, num_quantizers=3, codebook_size=16), (_vectors(),), {}


@library("vector_quantize_pytorch")
def finite_scalar() -> Made:
    """Every channel rounded to a few levels."""
    from vector_quantize_pytorch import FSQ

    return FSQ(levels=[8, 5, 5], dim=16), (_vectors(),), {}


@library("vector_quantize_pytorch")
def lookup_free() -> Made:
    """Signs as codes, with an entropy loss over all codes."""
    from vector_quantize_pytorch import LFQ

    return LFQ(codebook_size=16, dim=16, entropy_loss_weight=0.1, diversity_gamma=1.0), (_vectors(),), {}


def _vectors() -> Tensor:
    return torch.randn(2, 12, 16, requires_grad=True)
