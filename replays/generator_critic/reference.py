"""The same operations by matrix algebra: no autograd, no optimizer, no module is called.

Prints one JSON object: for each seed on the command line the losses in the order of the backward calls, and for each
parameter its gradient and its movement in every operation, row by row.

With s the scores, h = tanh(x W' + b) and s = h v' + c, the losses are means of softplus(s) = log(1 + exp(s)), whose
derivative is sigmoid(s), and of softplus(-s), whose derivative is -sigmoid(-s).
"""

import json
import sys

import torch
from system import RATE, batches, build


def log_one_plus_exp(values):
    return torch.log1p(torch.exp(-values.abs())) + values.clamp(min=0.0)


def sigmoid(values):
    return 1.0 / (1.0 + torch.exp(-values))


def scores(points, critic):
    """Scores [N, 1] and the hidden layer [N, 4] that they are made of."""
    hidden = torch.tanh(points @ critic["hidden.weight"].T + critic["hidden.bias"])
    return hidden @ critic["score.weight"].T + critic["score.bias"], hidden


def into_hidden(slopes, hidden, critic):
    """d loss / d (what tanh is taken of), [N, 4], from d loss / d score, [N, 1]."""
    return (slopes @ critic["score.weight"]) * (1.0 - hidden * hidden)


def critic_gradients(points, slopes, hidden, critic):
    inner = into_hidden(slopes, hidden, critic)
    return {
        "hidden.weight": inner.T @ points,
        "hidden.bias": inner.sum(dim=0),
        "score.weight": slopes.T @ hidden,
        "score.bias": slopes.sum(dim=0),
    }


def operate(generator, critic, noise, real):
    """Losses and gradients of one operation; all gradients are taken before anything moves."""
    rows = len(noise)
    fake = noise @ generator["output.weight"].T + generator["output.bias"]
    real_scores, real_hidden = scores(real, critic)
    fake_scores, fake_hidden = scores(fake, critic)
    critic_loss = log_one_plus_exp(-real_scores).mean() + log_one_plus_exp(fake_scores).mean()
    generator_loss = log_one_plus_exp(-fake_scores).mean()
    of_real = critic_gradients(real, -sigmoid(-real_scores) / rows, real_hidden, critic)
    of_fake = critic_gradients(fake, sigmoid(fake_scores) / rows, fake_hidden, critic)
    into_fake = into_hidden(-sigmoid(-fake_scores) / rows, fake_hidden, critic) @ critic["hidden.weight"]
    return (
        [critic_loss, generator_loss],
        {"output.weight": into_fake.T @ noise, "output.bias": into_fake.sum(dim=0)},
        {name: of_real[name] + of_fake[name] for name in of_real},
    )


def run(seed):
    """Three operations from the models that this seed draws."""
    models = [{name: tensor.clone() for name, tensor in model.state_dict().items()} for model in build(seed)]
    found = {"seed": seed, "losses": [], "gradients": {}, "movements": {}}
    for noise, real in batches(seed):
        losses, *gradients = operate(*models, noise, real)
        found["losses"] += [loss.item() for loss in losses]
        for label, model, own in zip(("Generator", "Critic"), models, gradients, strict=True):
            for name, gradient in own.items():
                before = model[name].clone()
                model[name] -= RATE * gradient
                found["gradients"].setdefault(f"{label}.{name}", []).append(gradient.flatten().tolist())
                moved = (model[name] - before).flatten().tolist()
                found["movements"].setdefault(f"{label}.{name}", []).append(moved)
    return found


if __name__ == "__main__":
    with torch.inference_mode():
        print(json.dumps({"runs": [run(int(word)) for word in sys.argv[1:]]}))
