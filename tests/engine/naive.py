"""What the engine must say, stated as a plain loop that recomputes everything at every token."""

import numpy as np
import numpy.typing as npt

from swiftspec_daemon.engine import toy
from swiftspec_daemon.engine.messages import Generate
from swiftspec_daemon.speculation.sampling import SamplingParameters, pick


def _adjusted(
    logits: npt.NDArray[np.float32], request: Generate, new: list[int]
) -> npt.NDArray[np.float64]:
    """Bias, then repetition penalty, token by token."""
    values = logits.astype(np.float64)
    for token, bias in request.logit_bias.items():
        values[token] += bias
    for token in {*request.prompt, *new}:
        penalty = request.repetition_penalty
        values[token] = values[token] * penalty if values[token] < 0 else values[token] / penalty
    return values


def run(options: toy.ToyOptions, request: Generate) -> tuple[list[int], str]:
    """All new tokens of a request on the toy model, and the reason of the end."""
    backend = toy.ToyBackend(options)
    table = toy.token_bytes(options.vocab)
    ends = {toy.EOS, *request.stop_ids}
    new: list[int] = []
    required, skip = request.required, len(request.required)
    while len(new) < request.max_tokens and len(request.prompt) + len(new) < backend.context:
        cache = backend.new_cache(backend.context)
        logits = backend.append(cache, [*request.prompt, *new], logits=True)
        assert logits is not None
        written = b"".join(table[t] for t in new)
        rest = required[len(written) :]
        allowed = [
            i for i, b in enumerate(table) if b and (b.startswith(rest) or rest[: len(b)] == b)
        ]
        logits = _adjusted(logits, request, new)
        sampling = SamplingParameters(
            temperature=request.temperature,
            top_k=request.top_k,
            top_p=request.top_p,
            min_p=request.min_p,
            seed=request.seed,
        )
        if rest and allowed:
            if request.temperature == 0:
                token = max(allowed, key=lambda i: (logits[i], -i))
            else:
                masked = logits.copy()
                masked[[i for i in range(len(masked)) if i not in set(allowed)]] = float("-inf")
                token = pick(masked, len(request.prompt) + len(new), sampling)
        else:
            if rest:
                required = skip = b"", 0
            token = (
                int(logits.argmax())
                if request.temperature == 0
                else pick(logits, len(request.prompt) + len(new), sampling)
            )
            if token in ends:
                return new, "stop"
        new.append(token)
        text = b"".join(table[t] for t in new)[skip:]
        if any(stop in text for stop in request.stop):
            return new, "stop"
    return new, "length"
