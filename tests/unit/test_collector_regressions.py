"""Each of these once went wrong: a user's file lost, a run disturbed, a healthy script accused."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from collector_runs import RANDOM_STATE, line_of, observe, observe_code, plain, row, with_status
from test_collector_guard import GUARDED, tree
from test_collector_passive import COMMON

from weaklink.collector.evidence import Row
from weaklink.collector.guard import undo
from weaklink.collector.scratch import Scratch


def script(body: str) -> str:
    return COMMON + textwrap.dedent(body)


# -- test_collector_guard.py: what a rerun writes outside is undone ----------------------------------------------------


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    (folder / "old").mkdir(parents=True)
    (folder / "a.txt").write_text("first")
    (folder / "b.txt").write_text("second")
    (folder / "old" / "c.txt").write_text("third")
    (folder / "latest").symlink_to(folder / "a.txt")
    (folder / "empty").mkdir()
    (tmp_path / "scratch" / "run").mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    "statements",
    [
        "os.rename(out / 'old', out / 'moved')",
        "shutil.move(out / 'old', out / 'moved')",
        "os.rename(out / 'old', 'taken_into_the_scratch_folder')",
        "os.remove(out / 'latest')",
        "os.remove(out / 'latest'); os.symlink(out / 'b.txt', out / 'latest')",
        "(out / 'new').write_text('x'); os.replace(out / 'new', out / 'latest')",
        "os.rmdir(out / 'empty')",
        "(out / 'a.txt').write_text('x'); os.remove(out / 'old' / 'c.txt'); os.rmdir(out / 'old')",
        "os.fork() or ((out / 'a.txt').write_text('child'), os._exit(0)); os.wait(); (out / 'b.txt').write_text('x')",
        "os.link(out / 'a.txt', 'mine'); open('mine', 'w').write('x')",
    ],
)
def test_what_was_written_outside_is_undone(out: Path, tmp_path: Path, statements: str) -> None:
    before = tree(out)
    plain(GUARDED + statements, tmp_path)
    undo(tmp_path / "scratch" / "journal.jsonl")
    assert tree(out) == before


def test_writes_of_several_threads_are_all_noted(out: Path, tmp_path: Path) -> None:
    before = tree(out)
    statements = """
import threading
sys.setswitchinterval(1e-6)
def write(k):
    for i in range(100):
        (out / f"{k}_{i}").write_text("x")
threads = [threading.Thread(target=write, args=(k,)) for k in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
"""
    assert plain(GUARDED + statements, tmp_path).code == 0
    undo(tmp_path / "scratch" / "journal.jsonl")
    assert tree(out) == before


def test_only_our_own_incidents_folder_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "p" / "data" / "incidents").mkdir(parents=True)
    (tmp_path / "p" / "data" / "incidents" / "rows.csv").write_text("1")
    with Scratch(tmp_path / "p") as scratch:
        scratch.lay()
        assert (scratch.folder / "data" / "incidents" / "rows.csv").exists()


def test_a_linked_temporary_folder_inside_the_project_is_not_copied_into_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p" / "tmp").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "p" / "tmp")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "link"))
    with Scratch(tmp_path / "p") as scratch:
        scratch.lay()
        assert list((scratch.folder / "tmp").iterdir()) == []


# -- test_collector_passive.py: SCRIPTS --------------------------------------------------------------------------------

PASSIVE = {
    "traced_by_jit": """
        model = torch.jit.trace(Net(), x)
        fit(model, torch.optim.SGD(model.parameters(), 0.1))
    """,
    "traced_by_fx": """
        import torch.fx
        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = Net()
            def forward(self, x):
                return self.net(x) * 2
        model = torch.fx.symbolic_trace(Outer())
        print(model.code)
        fit(model, torch.optim.SGD(model.parameters(), 0.1))
    """,
    "gradients_per_example_by_vmap": """
        model = Net()
        def loss_of(parameters, a, b):
            return F.cross_entropy(torch.func.functional_call(model, parameters, (a[None],)), b[None])
        parameters = {k: v.detach() for k, v in model.named_parameters()}
        found = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0, 0))(parameters, x, y)
        print({k: tuple(v.shape) for k, v in found.items()})
        fit(model, torch.optim.SGD(model.parameters(), 0.1))
    """,
    "jagged_inputs": """
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(4):
            rows = torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(2, 4)], layout=torch.jagged)
            loss = model(rows).values().pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(repr(loss.item()))
    """,
    "a_function_that_names_its_context": """
        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                ctx.name = "square"
                return x * x
            @staticmethod
            def backward(ctx, gradient):
                return 2 * ctx.saved_tensors[0] * gradient
        class Model(Net):
            def forward(self, x):
                return Square.apply(super().forward(x))
        model = Model()
        fit(model, torch.optim.SGD(model.parameters(), 0.05))
    """,
    "a_lazy_branch_that_never_runs": """
        class Branches(nn.Module):
            def __init__(self):
                super().__init__()
                self.used, self.unused = nn.LazyLinear(2), nn.LazyLinear(3)
            def forward(self, x):
                return self.used(x)
        model = Branches()
        model(x)
        fit(model, torch.optim.SGD(model.used.parameters(), 0.1))
    """,
    "a_child_process_that_is_terminated": """
        import multiprocessing, time
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(30,))
        child.start()
        time.sleep(0.2)
        child.terminate()
        child.join()
        print(child.exitcode)
    """,
    "a_module_that_loads_itself_when_looked_at": """
        import importlib.util, sys
        open("noisy.py", "w").write("print('loaded')")
        spec = importlib.util.spec_from_file_location("noisy", "noisy.py")
        loader = importlib.util.LazyLoader(spec.loader)
        spec.loader = loader
        module = importlib.util.module_from_spec(spec)
        sys.modules["noisy"] = module
        loader.exec_module(module)
        model = Net()
        fit(model, torch.optim.SGD(model.parameters(), 0.1))
    """,
    "a_module_that_raises_when_looked_at": """
        import sys, types
        class Optional(types.ModuleType):
            def __getattr__(self, name):
                if name == "__path__":
                    raise AttributeError(name)
                raise ImportError("an optional dependency is missing")
        sys.modules["optional"] = Optional("optional")
        model = Net()
        fit(model, torch.optim.SGD(model.parameters(), 0.1))
    """,
    "builtins_as_a_module": """
        __builtins__.print("through the module")
        print("done")
    """,
    "gradients_of_inputs_alone": """
        model = Net()
        for _ in range(5):
            inputs = x.clone().requires_grad_(True)
            model(inputs)[:, 0].sum().backward()
            print(repr(inputs.grad.abs().sum().item()))
    """,
    "weights_in_a_dictionary": """
        model = Net()
        weights = {k: v.detach().clone().requires_grad_(True) for k, v in model.named_parameters()}
        for _ in range(8):
            loss = F.cross_entropy(torch.func.functional_call(model, weights, (x,)), y)
            loss.backward()
            weights = {k: (v - 0.1 * v.grad).detach().requires_grad_(True) for k, v in weights.items()}
            print(repr(loss.item()))
    """,
    "critic_steps_five_times_as_often": """
        maker = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
        critic = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(), nn.Linear(8, 1))
        a, b = torch.optim.Adam(maker.parameters(), 1e-3), torch.optim.Adam(critic.parameters(), 1e-3)
        for _ in range(12):
            for _ in range(5):
                of_critic = critic(maker(torch.randn(8, 4)).detach()).mean() - critic(x[:8]).mean()
                b.zero_grad()
                of_critic.backward()
                b.step()
            of_maker = -critic(maker(torch.randn(8, 4))).mean()
            a.zero_grad()
            of_maker.backward()
            a.step()
            a.zero_grad()
            print(repr(of_critic.item()), repr(of_maker.item()))
    """,
    "large_and_finite_gradients": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 1e-26)
        for _ in range(8):
            loss = F.cross_entropy(model(x), y) * 1e25
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(repr(loss.item()))
    """,
}


@pytest.mark.parametrize("name", PASSIVE)
def test_passive_and_innocent(name: str, tmp_path: Path) -> None:
    source = script(PASSIVE[name]) + RANDOM_STATE
    watched, alone = observe(source, tmp_path), plain(source, tmp_path)
    assert alone.code == 0, alone.err
    assert (watched.code, watched.out, watched.err) == (alone.code, alone.out, alone.err)
    assert watched.seen.problems == []
    assert with_status(watched.seen, "fail") == {}
    assert with_status(watched.seen, "suspected") == {}


# No accusation; a question ("suspected") is right there.
ASKED = {
    "a_parameter_used_by_a_method_and_left_out_on_purpose": """
        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale, self.net = nn.Parameter(torch.ones(4)), Net()
            def logits(self, x):
                return self.net(x * self.scale)
        model = Scaled()
        optimizer = torch.optim.SGD(model.net.parameters(), 0.1)
        for _ in range(8):
            loss = F.cross_entropy(model.logits(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
}


@pytest.mark.parametrize("name", ASKED)
def test_what_may_be_intended_is_asked_and_not_accused(name: str, tmp_path: Path) -> None:
    assert with_status(observe_code(script(ASKED[name]), tmp_path), "fail") == {}


# -- test_collector_rows.py --------------------------------------------------------------------------------------------


def test_raising_in_an_evaluation_is_placed_there(tmp_path: Path) -> None:
    body = """
        model = Net()
        fit(model, torch.optim.SGD(model.parameters(), 0.1))
        with torch.no_grad():
            model(torch.zeros(2, 3))
    """
    assert set(with_status(observe(script(body), tmp_path).seen, "fail")) == {"EVALUATION/raised"}


def test_raising_after_the_last_forward_accuses_no_boundary(tmp_path: Path) -> None:
    body = """
        model = Net()
        fit(model, torch.optim.SGD(model.parameters(), 0.1))
        scores = model(x)
        open("/nowhere/plot.png", "w")
    """
    assert with_status(observe(script(body), tmp_path).seen, "fail") == {}


def test_ignored_labels_outside_the_classes_are_read(tmp_path: Path) -> None:
    body = """
        y[3] = 255
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            loss = F.cross_entropy(model(x), y, ignore_index=255)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """
    evidence = observe_code(script(body), tmp_path)
    assert row(evidence, "OBJECTIVE/by_hand").status == "pass"
    assert row(evidence, "TASK/supervised").values == {"supervised": 189, "targets": 192}


def test_inputs_given_by_name_are_seen(tmp_path: Path) -> None:
    body = """
        x[0, 0] = float("nan")
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            loss = F.cross_entropy(model(x=x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """
    first = observe_code(script(body), tmp_path).first_divergence
    assert first is not None
    assert first.id == "TASK/finite"


def test_a_step_that_calls_its_parents_step_counts_once(tmp_path: Path) -> None:
    body = """
        other = torch.optim.SGD(nn.Linear(1, 1).parameters(), 0.1)
        class Decaying(torch.optim.SGD):
            @torch.no_grad()
            def step(self, closure=None):
                super().step()
                for group in self.param_groups:
                    for parameter in group["params"]:
                        parameter *= 0.5
        model = Net()
        fit(model, Decaying(model.parameters(), 0.0), 6)
    """
    evidence = observe_code(script(body), tmp_path)
    assert evidence.outcome.steps == 6
    assert row(evidence, "UPDATE/moved").values["moved"] == 4


def test_a_scaler_beside_a_plain_optimizer_skips_no_negative_number(tmp_path: Path) -> None:
    body = """
        model, other = Net(), Net()
        a, b = torch.optim.SGD(model.parameters(), 0.1), torch.optim.SGD(other.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, backoff_factor=2.0**-60)
        for _ in range(6):
            loss = F.cross_entropy(model(x), y) * 64
            a.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(a)
            scaler.update()
            fit(other, b, 1)
    """
    values = row(observe_code(script(body), tmp_path), "UPDATE/scaler").values
    assert values == {"asked": 6, "skipped": 1}


def test_the_line_that_builds_a_model_at_module_level_is_named(tmp_path: Path) -> None:
    body = """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model = Net()  # again
        fit(model, optimizer)
    """
    evidence = observe_code(script(body), tmp_path)
    lines = [site.line for site in row(evidence, "OWNERSHIP/owned").where]
    assert line_of(script(body), "# again") in lines


def test_a_model_built_again_after_its_optimizer(tmp_path: Path) -> None:
    body = """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)  # built
        model = Net()
        fit(model, optimizer)
    """
    first = observe_code(script(body), tmp_path).first_divergence
    assert first is not None
    assert (first.id, first.status) == ("OWNERSHIP/owned", "fail")
    assert first.where[0].line == line_of(script(body), "# built")


# -- test_collector_interventions.py -----------------------------------------------------------------------------------


def test_placebo_passes_over_a_parameter_of_zeros(tmp_path: Path) -> None:
    body = """
        model = Net()
        nn.init.zeros_(model.head.bias)
        fit(model, torch.optim.SGD(model.parameters(), 0.1), 20)
    """
    nudged = observe(script(body), tmp_path, role="placebo", intervention="placebo").seen.losses.value
    assert nudged != observe(script(body), tmp_path).seen.losses.value


def test_an_idle_optimizer_does_not_swallow_the_missing_parameters(tmp_path: Path) -> None:
    body = """
        model = Net()
        idle = torch.optim.SGD(model.features.parameters(), 0.1)
        fit(model, torch.optim.SGD(model.features.parameters(), 0.1))
    """
    run = observe(
        script(body),
        tmp_path,
        role="treatment",
        intervention="own_missing_parameters",
        intervention_parameters={"parameters": "*"},
    )
    assert run.seen.intervention is not None
    assert run.seen.intervention.applied


# -- test_collector_launch.py ------------------------------------------------------------------------------------------


def test_a_message_that_is_no_utf8_does_not_cost_the_evidence(tmp_path: Path) -> None:
    run = observe(script("raise ValueError('bad \\udce9 byte')"), tmp_path)
    assert run.code == 1
    assert run.seen.outcome.ended == "raised"


def test_warnings_of_wrapped_calls_name_the_users_line(tmp_path: Path) -> None:
    body = """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
        scheduler.step()
    """
    assert observe(script(body), tmp_path).err == plain(script(body), tmp_path).err


def test_torch_compile_prints_no_warning_about_our_hooks(tmp_path: Path) -> None:
    body = """
        model = torch.compile(Net(), backend="aot_eager")
        fit(model, torch.optim.SGD(model.parameters(), 0.1), 4)
    """
    assert observe(script(body), tmp_path).err == plain(script(body), tmp_path).err


# -- test_collector_evidence.py ----------------------------------------------------------------------------------------


def test_names_that_look_like_numbers_stay_names() -> None:
    """The parameters of `nn.ModuleList([nn.ParameterList([...])])` are called 0.0 and 0.1."""
    found = Row(id="OWNERSHIP/owned", status="evidence", text="", values={"missing": ["0.0", "0.1"]})
    assert found.values["missing"] == ["0.0", "0.1"]


# -- healthy scripts that were accused ---------------------------------------------------------------------------------

HEALTHY = {
    "an_additive_mask_of_minus_infinity": """
        class Masked(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Linear(4, 3)
            def forward(self, mask, x):
                return self.net(x) + mask
        model = Masked()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        mask = torch.tensor([0.0, 0.0, float("-inf")])
        fit(lambda x: model(mask, x), optimizer)
    """,
    "a_loss_scale_kept_by_hand": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scale = 2.0**127
        for _ in range(30):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            (loss * scale * 64).backward() if scale > 1e20 else (loss * scale).backward()
            if all(torch.isfinite(p.grad).all() for p in model.parameters()):
                for p in model.parameters():
                    p.grad.div_(scale)
                optimizer.step()
            else:
                scale = 1024.0
    """,
    "a_momentum_kept_in_the_gradient": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(8):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            for p in model.parameters():
                p.grad.mul_(0.9)
    """,
    "an_input_optimised_through_a_network_made_later": """
        image = nn.Parameter(torch.zeros(4))
        optimizer = torch.optim.Adam([image], lr=0.1)
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        fit(lambda x: net(x + image), optimizer)
    """,
    "an_input_optimised_through_a_network_made_before": """
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        image = nn.Parameter(torch.zeros(4))
        fit(lambda x: net(x + image), torch.optim.Adam([image], lr=0.1))
    """,
    "a_parameter_of_the_model_updated_by_hand": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.temperature = nn.Parameter(torch.ones(1))
        for _ in range(8):
            loss = F.cross_entropy(model(x) * model.temperature, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                model.temperature -= 0.01 * model.temperature.grad
            model.temperature.grad = None
    """,
    "a_loose_parameter_updated_by_hand": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        log_alpha = nn.Parameter(torch.zeros(()))
        for _ in range(8):
            loss = F.cross_entropy(model(x), y) + (log_alpha - 1.0) ** 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                log_alpha -= 0.1 * log_alpha.grad
            log_alpha.grad = None
    """,
}


@pytest.mark.parametrize("name", sorted(HEALTHY))
def test_healthy_by_hand_is_not_accused(tmp_path: Path, name: str) -> None:
    evidence = observe_code(script(HEALTHY[name]), tmp_path)
    assert with_status(evidence, "fail") == {}


def test_a_run_cut_before_its_first_step_is_not_accused(tmp_path: Path) -> None:
    body = """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for n in range(10**9):
            F.cross_entropy(model(x), y).backward()
            if n % 10**6 == 10**6 - 1:
                optimizer.step()
    """
    evidence = observe_code(script(body), tmp_path, horizon_backwards=50)
    assert evidence.outcome.ended == "stopped"
    assert with_status(evidence, "fail") == {}


@pytest.mark.parametrize("again", ["copy.deepcopy(model)", "Net()"])
def test_a_model_made_again_after_its_optimizer_is_owned_by_nobody(tmp_path: Path, again: str) -> None:
    body = f"""
        model = Net()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)  # built
        model = {again}
        fit(model, optimizer)
    """
    evidence = observe_code(script(body), tmp_path)
    first = evidence.first_divergence
    assert first is not None
    assert (first.id, first.status, first.basis) == ("OWNERSHIP/owned", "fail", "exact")
    assert first.where[0].line == line_of(script(body), "# built")
    assert row(evidence, "OWNERSHIP/stale").status == "fail"


def test_a_script_that_leaves_by_os_exit_keeps_its_evidence(tmp_path: Path) -> None:
    body = """
        import os
        model = Net()
        fit(model, torch.optim.SGD(model.parameters(), lr=0.1), steps=40)
        os._exit(3)
    """
    run = observe(script(body), tmp_path)
    assert run.code == 3
    assert run.evidence is not None
    assert run.evidence.outcome.ended == "exited"
    assert run.evidence.outcome.steps == 40
