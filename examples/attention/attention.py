"""Attention over observations of robocache: tokens of modalities at capture times. A value that is not valid gets no attention.

There is a token for each modality in each row of a window. The key of a token encodes the modality, and the time of the sample
as Fourier features. The mask of `torch.nn.functional.scaled_dot_product_attention` is made of `valid`. Queries are times
as well, such as the times of future actions, so that streams of any rate meet at the times at which the policy acts.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Tokens:
    """A batch of B windows with T rows and M modalities, ready for attention.

    - `values`: a tensor [B, T, D_m] for each modality, 0 where the modality is not valid
    - `times_s` [B, T, M] float32: capture time of each sample relative to the newest row, seconds, 0 or less
    - `valid` [B, T, M] bool: True for tokens that get attention
    - `whole`: True if all of `valid` is True
    """

    def __init__(self, values: list[torch.Tensor], times_s: torch.Tensor, valid: torch.Tensor, whole: bool = False):
        self.values, self.times_s, self.valid, self.whole = values, times_s, valid, whole

    @classmethod
    def of(cls, observations: list, device: torch.device | str = "cpu", each_sample_once: bool = False) -> "Tokens":
        """Turns observations (`robocache.Observation`), all of the same modalities, into one batch of tokens.

        A sample of a stream that is slower than the rows is in several rows. With `each_sample_once`, only the oldest
        of these rows gets attention. The option is for the modes `previous` and `nearest`, which hold samples; other
        modes blend samples.
        """
        stack = lambda name: torch.stack([torch.from_numpy(getattr(o, name)) for o in observations])  # noqa: E731
        valid, age_ns, targets_ns = stack("valid"), stack("age_ns"), stack("timestamps_ns")
        # Differences are taken in int64: in float32, neighbouring numbers of the size of ns since 1970 are 128 s apart.
        capture_ns = targets_ns[:, :, None] - age_ns
        times_s = (capture_ns - targets_ns[:, -1:, None]).float() * 1e-9
        # A token without a sample has no time. The token is masked, but its time must still be a number.
        times_s = torch.where(age_ns >= 0, times_s, 0.0)
        if each_sample_once:
            again = torch.zeros_like(valid)
            again[:, 1:] = valid[:, :-1] & (capture_ns[:, 1:] == capture_ns[:, :-1])
            valid = valid & ~again
        fused = torch.stack([o.tensor.torch().float() for o in observations])
        offsets, measured = observations[0].offsets, stack("valid")
        values = [
            # NaN times 0 is NaN, so a masked value must be 0 before it is multiplied.
            torch.where(measured[:, :, m, None], fused[:, :, offsets[m] : offsets[m + 1]], 0.0).to(device)
            for m in range(len(offsets) - 1)
        ]
        # `valid` is checked on the host, because a check on a GPU would wait for the GPU.
        return cls(values, times_s.to(device), valid.to(device), whole=bool(valid.all()))


class TimeEncoding(nn.Module):
    """Fourier features of times: sine and cosine for `bands` periods, spaced geometrically from `shortest_s` to `longest_s`."""

    def __init__(self, bands: int = 16, shortest_s: float = 0.004, longest_s: float = 8.0):
        super().__init__()
        periods = shortest_s * (longest_s / shortest_s) ** torch.linspace(0, 1, bands)
        self.register_buffer("rates", 2 * math.pi / periods)

    @property
    def width(self) -> int:
        return 2 * len(self.rates)

    def forward(self, times_s: torch.Tensor) -> torch.Tensor:
        """Encodes times of any shape, seconds, as [..., 2 * bands]."""
        angles = times_s[..., None] * self.rates
        return torch.cat([angles.sin(), angles.cos()], dim=-1)


class TimeAttention(nn.Module):
    """Cross-attention from query times to the tokens of all modalities, whose stamps may be irregular.

    The list `dims` has the number of columns of each modality, D_m. One more key belongs to no sensor and is always valid. Without
    that key, the features of a query would be NaN if no token is valid.
    """

    def __init__(self, dims: list[int], width: int = 128, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.time = TimeEncoding()
        self.embed = nn.ModuleList(nn.Linear(dim, width) for dim in dims)
        self.modality = nn.Parameter(torch.randn(len(dims), width) / math.sqrt(width))
        self.key_time = nn.Linear(self.time.width, width, bias=False)
        self.query = nn.Linear(self.time.width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.nothing = nn.Parameter(torch.randn(1, 1, width) / math.sqrt(width))
        self.out = nn.Linear(width, width)

    def forward(self, tokens: Tokens, query_times_s: torch.Tensor) -> torch.Tensor:
        """Returns features [B, Q, width] for the times `query_times_s` [B, Q], in seconds after the newest row."""
        embedded = torch.stack([embed(values) for embed, values in zip(self.embed, tokens.values)], dim=2)
        keys = (embedded + self.modality + self.key_time(self.time(tokens.times_s))).flatten(1, 2)
        batch = len(keys)
        keys = torch.cat([self.nothing.expand(batch, -1, -1), keys], dim=1)
        # [B, 1, 1, 1 + T * M]; True gets attention. Without a mask, torch has a kernel that is two to three times as fast.
        mask = None if tokens.whole else F.pad(tokens.valid.flatten(1, 2), (1, 0), value=True)[:, None, None, :]
        split = lambda x: x.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # noqa: E731
        key, value = map(split, self.key_value(keys).chunk(2, dim=-1))
        query = split(self.query(self.time(query_times_s)))
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.out(attended.transpose(1, 2).flatten(2))
