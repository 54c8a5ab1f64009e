"""Noise schedules and samplers beside diffusers, step by step with the same outputs and noise."""

from functools import partial

import pytest
import torch

from cloze.decode.samplers import make_sampler
from cloze.nn.noise_schedule import DiffusionSchedule, FlowSchedule, add_noise, make_target

diffusers = pytest.importorskip("diffusers")
pytestmark = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:diffusers"),
]

PREDICTIONS = {"noise": "epsilon", "velocity": "v_prediction"}
BETAS = {"linear": "linear", "scaled_linear": "scaled_linear", "cosine": "squaredcos_cap_v2"}


def output_of(x, time):
    """Stands for a model: depends on the sample and the time."""
    return torch.sin(3 * x) + 0.1 * torch.cos(time.double() / 100)[:, None, None, None]


def compare(ours, theirs, *, steps, **options):
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    theirs.set_timesteps(steps)
    assert ours.times.double().tolist() == pytest.approx(theirs.timesteps.double().tolist())
    seeds = torch.Generator().manual_seed(5)
    draws = [torch.randn(x.shape, dtype=x.dtype, generator=seeds) for _ in range(steps)]
    generator = torch.Generator().manual_seed(5)
    for index, time in enumerate(theirs.timesteps):
        output = output_of(x, time.expand(2))
        found = ours.step(index, x, output, partial(draws.__getitem__, index)).sample
        x = theirs.step(output, time, x, generator=generator, **options).prev_sample
        atol = 1e-4 * float(x.abs().max())  # their α and σ are in float32
        torch.testing.assert_close(found, x.to(found), rtol=1e-4, atol=atol)


@pytest.mark.parametrize("kind", BETAS)
def test_schedules(kind):
    theirs = diffusers.DDPMScheduler(beta_schedule=BETAS[kind], beta_start=1e-4, beta_end=2e-2)
    ours = DiffusionSchedule.make(kind)
    torch.testing.assert_close(ours.betas.float(), theirs.betas, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(
        ours.alphas_cumprod.float(), theirs.alphas_cumprod, rtol=2e-5, atol=1e-6
    )
    x, noise = torch.randn(2, 5, 3, 4, 4)
    times = torch.tensor([0, 10, 500, 998, 999])
    level = ours.level(times)
    torch.testing.assert_close(
        add_noise(x, noise, level), theirs.add_noise(x, noise, times), rtol=1e-4, atol=1e-5
    )
    target = make_target(x, noise, level, "velocity")
    torch.testing.assert_close(target, theirs.get_velocity(x, noise, times), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("prediction", PREDICTIONS)
@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize("steps", [4, 50])
def test_ddpm(prediction, clip, steps):
    theirs = diffusers.DDPMScheduler(
        beta_schedule="linear", prediction_type=PREDICTIONS[prediction], clip_sample=clip
    )
    schedule = DiffusionSchedule.make("linear", prediction)
    compare(make_sampler("ddpm", schedule, steps, clip=clip), theirs, steps=steps)


@pytest.mark.parametrize("prediction", PREDICTIONS)
@pytest.mark.parametrize("clip", [True, False])
def test_ddim(prediction, clip):
    theirs = diffusers.DDIMScheduler(
        beta_schedule="scaled_linear", prediction_type=PREDICTIONS[prediction], clip_sample=clip
    )
    schedule = DiffusionSchedule.make("scaled_linear", prediction)
    sampler = make_sampler("ddim", schedule, 20, clip=clip)
    compare(sampler, theirs, steps=20, use_clipped_model_output=clip)


@pytest.mark.parametrize("prediction", PREDICTIONS)
@pytest.mark.parametrize("steps", [1, 2, 4, 20, 100])
def test_dpm_solver(prediction, steps):
    theirs = diffusers.DPMSolverMultistepScheduler(
        beta_schedule="linear", prediction_type=PREDICTIONS[prediction]
    )
    schedule = DiffusionSchedule.make("linear", prediction)
    compare(make_sampler("dpm-solver++", schedule, steps, clip=False), theirs, steps=steps)


@pytest.mark.parametrize("steps", [1, 4, 50])
def test_euler_flow(steps):
    theirs = diffusers.FlowMatchEulerDiscreteScheduler()
    compare(make_sampler("euler", FlowSchedule(), steps, clip=False), theirs, steps=steps)
    x, noise = torch.randn(2, 3, 3, 4, 4)
    times = torch.tensor([1.0, 300.0, 1000.0])
    level = FlowSchedule().level(times)
    theirs = diffusers.FlowMatchEulerDiscreteScheduler()
    torch.testing.assert_close(add_noise(x, noise, level), theirs.scale_noise(x, times, noise))
