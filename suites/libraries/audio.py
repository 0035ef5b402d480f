"""Models that hear and speak."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from assay.harness.case import Made
from assay.suites.libraries.row import library


def features(batch: int = 2, length: int = 20, width: int = 16) -> Tensor:
    """Shapes: -> features[batch, length, width]."""
    return torch.randn(batch, length, width, requires_grad=True)


@library("speechbrain", tags=("audio",))
def ecapa() -> Made:
    """Time delays, squeeze and excitation, pooling by attention: one vector a speaker."""
    from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN

    model = ECAPA_TDNN(
        16, lin_neurons=8, channels=[16, 16, 16, 16, 32], kernel_sizes=[5, 3, 3, 3, 1], dilations=[1, 2, 3, 4, 1],
        attention_channels=8, res2net_scale=4, se_channels=8,
    )  # fmt: skip
    lengths = torch.tensor([1.0, 0.775, 0.525, 0.275])  # of 20 frames: none ends where rounding could move its mask
    return model, (features(4), lengths), {}


@library("speechbrain", tags=("audio",))
def light_gru() -> Made:
    """A recurrent cell of its own, with batch norm."""
    from speechbrain.nnet.RNN import LiGRU

    return LiGRU(hidden_size=8, input_shape=(4, 6, 16), bidirectional=True), (features(4, 6),), {}


@library("speechbrain", tags=("audio",))
def conformer() -> Made:
    """Attention with relative positions and a convolution, twice a layer fed forward."""
    from speechbrain.lobes.models.transformer.Conformer import ConformerEncoder
    from speechbrain.nnet.attention import RelPosEncXL

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.positions, self.layers = RelPosEncXL(16), ConformerEncoder(2, 16, 32, 2, kernel_size=3, dropout=0.0)

        def forward(self, sound: Tensor) -> Tensor:
            return self.layers(sound, pos_embs=self.positions(sound))[0]  # type: ignore[no-any-return]

    return Encoder(), (features(),), {}


@library("speechbrain", tags=("audio",))
def filterbank() -> Made:
    """Spectrum, mel filters, deltas, and a norm over a sentence."""
    from speechbrain.processing.features import STFT, Deltas, Filterbank, spectral_magnitude

    class Bank(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.transform = STFT(16000, win_length=4, hop_length=2, n_fft=64)
            self.bank, self.deltas = Filterbank(8, n_fft=64), Deltas(8)

        def forward(self, wave: Tensor) -> Tensor:
            return self.deltas(self.bank(spectral_magnitude(self.transform(wave))))  # type: ignore[no-any-return]

    return Bank(), (torch.randn(2, 1600, requires_grad=True),), {}


@library("speechbrain", tags=("audio",))
def crdnn() -> Made:
    """Convolutions, a recurrent layer and a dense one."""
    from speechbrain.lobes.models.CRDNN import CRDNN

    model = CRDNN(
        input_shape=(4, 12, 16), cnn_blocks=1, cnn_channels=[4], rnn_layers=1, rnn_neurons=8, rnn_bidirectional=True,
        dnn_blocks=1, dnn_neurons=8, dropout=0.0, time_pooling=True,
    )  # fmt: skip
    return model, (features(4, 12),), {}


@library("encodec", tags=("audio",))
def seanet() -> Made:
    """Convolutions with weight norm down and up, a recurrent layer between."""
    from encodec.modules import SEANetDecoder, SEANetEncoder

    settings = {"dimension": 8, "n_filters": 4, "n_residual_layers": 1, "ratios": [2, 2], "lstm": 1}
    both = nn.Sequential(SEANetEncoder(**settings), SEANetDecoder(**settings))
    return both, (torch.randn(2, 1, 64, requires_grad=True),), {}


@library("asteroid_filterbanks", tags=("audio",))
def analysis_and_synthesis() -> Made:
    """A learned analysis, a mask, and its synthesis."""
    from asteroid_filterbanks import make_enc_dec

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = make_enc_dec("free", n_filters=16, kernel_size=8, stride=4)
            self.mask = nn.Conv1d(16, 16, 1)

        def forward(self, wave: Tensor) -> Tensor:
            seen = self.encoder(wave)
            return self.decoder(seen * self.mask(seen).sigmoid())  # type: ignore[no-any-return]

    return Masked(), (torch.randn(2, 1, 64, requires_grad=True),), {}


@library("asteroid_filterbanks", tags=("audio",))
def parametric_sinc() -> Made:
    """Filters of sines between two learned frequencies."""
    from asteroid_filterbanks import Encoder, ParamSincFB

    return Encoder(ParamSincFB(n_filters=8, kernel_size=17, stride=4)), (torch.randn(2, 1, 64, requires_grad=True),), {}


@library("conformer", tags=("audio",))
def block() -> Made:
    """Lucidrains' block: attention with relative positions, a depthwise convolution."""
    from conformer import ConformerBlock

    return ConformerBlock(dim=16, dim_head=8, heads=2, ff_mult=2, conv_kernel_size=5), (features(4),), {}


@library("torchaudio", tags=("audio",))
def conv_tasnet() -> Made:
    """Speakers separated by dilated convolutions and masks."""
    from torchaudio.models import ConvTasNet

    model = ConvTasNet(
        num_sources=2, enc_kernel_size=8, enc_num_feats=16, msk_kernel_size=3, msk_num_feats=8,
        msk_num_hidden_feats=16, msk_num_layers=2, msk_num_stacks=1,
    )  # fmt: skip
    return model, (torch.randn(2, 1, 64, requires_grad=True),), {}


@library("torchaudio", tags=("audio",))
def emformer() -> Made:
    """Attention in segments with a memory, for streams."""
    from torchaudio.models import Emformer

    model = Emformer(16, 2, 32, 2, segment_length=4, right_context_length=1, left_context_length=4)
    return model, (torch.randn(2, 13, 16), torch.tensor([12, 9])), {}


@library("torchaudio", tags=("audio",))
def mel() -> Made:
    """A mel spectrogram in decibels, and its cepstral coefficients."""
    from torchaudio.transforms import MFCC, AmplitudeToDB, MelSpectrogram

    settings = {"n_fft": 64, "n_mels": 8, "hop_length": 32}
    decibels = nn.Sequential(MelSpectrogram(16000, **settings), AmplitudeToDB())
    cepstrum = MFCC(16000, n_mfcc=4, melkwargs=settings)
    return _Both(decibels, cepstrum), (torch.randn(2, 800, requires_grad=True),), {}


class _Both(nn.Module):
    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, wave: Tensor) -> list[Tensor]:
        return [part(wave) for part in self.parts]


@library("torchaudio", tags=("audio",))
def wave_rnn() -> Made:
    """Samples predicted from spectrograms that are stretched, by recurrent layers."""
    from torchaudio.models import WaveRNN

    model = WaveRNN(
        upsample_scales=[2, 2], n_classes=8, hop_length=4, n_res_block=1, n_rnn=8, n_fc=8, kernel_size=3, n_freq=8,
        n_hidden=8, n_output=8,
    )  # fmt: skip
    return model, (torch.randn(2, 1, 16), torch.randn(2, 1, 8, 6)), {}
