"""Measure what each trick of grpo_theory/compiler buys, by switching it off: the table of docs/compiler.md.

Run from the top folder:  .venv/bin/python tools/measure_compiler.py [--only NAME ...]

Every trick is switched off in a process of its own, with an empty cache, and it and a process with all tricks take turns. The
output is ratios of processor time, without the trick to with all. One is of the first calls, which compile (the least of
several). The other is of the time per response afterwards (the median over pairs of turns, because an idle machine is rare).
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from statistics import median

TOP = Path(__file__).resolve().parents[1]
WARMING = 20
"""The turns of a new process before any counts.

In the first ten or so, arrays lie in memory that the system has just handed out. To touch it takes 2,300 page faults, and as
long as to simulate the gradients. The process with all tricks has that behind it."""

PATCHES = {
    "all tricks": "",
    "LLVM's third level": "economy.LEVEL = 3",
    "loops unrolled": "economy.pass_builder = codegen.create_pass_builder",
    "garbage collected": "economy.gc = types.SimpleNamespace(isenabled=lambda: False, disable=lambda: None)",
    "references counted": "options.NO_ARRAYS.clear()",
    "stages called": "stages.stage = compiler.stage = lambda function: stages._as_stage(function, **options.NO_ARRAYS)",
    "stages with wrappers": "stages.Stage = lambda function, targetoptions: numba.njit("
    "function, **{k: v for k, v in targetoptions.items() if k not in ('nopython', 'no_cpython_wrapper')})",
    "wrappers for C": "del options.OPTIONS['no_cfunc_wrapper']",
    "dispatch": "compilation.compile_driver = DISPATCHED",
    "dispatch, fields looked at": "compilation.compile_driver = DISPATCHED\n"
    "compiler.record_type = lambda record, *fields: numba.types.NamedTuple(fields, record)",
    "fields looked at": "compiler.record_type = lambda record, *fields: numba.types.NamedTuple(fields, record)",
    "numba's function values": "NUMBAS_VALUES()",
    "no picking": "lanes.values.PICKED = lanes.PICKED = lanes.lookup.PICKED = 0",
    "no picking, rows gathered": "lanes.values.PICKED = lanes.PICKED = lanes.lookup.PICKED = 0; GATHER_ROWS()",
    "arrays anywhere": "lanes.zeros = lambda *shape, dtype=np.float64: np.zeros(shape, dtype)",
    "no second inference": "inference.inferring_first = compiler.inferring_first = lambda own: numba.core.compiler.Compiler",
    "no checksums": "cache._checked = lambda data: data[:-32]",
}

PROGRAM = '''
import json, sys, time, types
begin = time.process_time()
import numba, numpy as np
from numba.core import codegen
import grpo_theory.compiler as compiler
from grpo_theory.compiler import cache, compilation, economy, function_pointers, function_values
from grpo_theory.compiler import inference, lanes, options, stages
from grpo_theory.compiler.lanes.lowering import data_of, steps
from grpo_theory.compiler.lanes.types import BITS, repeated
from llvmlite import ir


class Dispatched:
    def __init__(self, dispatcher):
        self.dispatcher, self.py_func = dispatcher, dispatcher.py_func

    def __call__(self, *arguments):
        return self.dispatcher(*arguments)


def DISPATCHED(function, signature, **more):
    return Dispatched(compilation.compile_function(function, signature, **more))


def NUMBAS_VALUES():
    """Let numba's own first-class functions stand for ours; they need the wrapper for C."""
    options.OPTIONS.pop("no_cfunc_wrapper")
    function_pointers.FirstClassType = function_values.FirstClassType = compiler.FirstClassType = numba.types.FunctionType
    value = lambda dispatcher, own: dispatcher
    function_pointers.first_class_value = function_values.first_class_value = compiler.first_class_value = value
    compiler.value_or_null = function_values.value_or_null = lambda function, is_called: function.value
    compilation.compile_driver = DISPATCHED


def GATHER_ROWS():
    """Read each column of a table with one look-up a lane."""

    def gathered(context, builder, signature, values):
        kind, _, columns = signature.args
        data, shape = data_of(context, builder, kind, values[0])
        found, _ = data_of(context, builder, columns, values[2])
        starts = builder.mul(values[1], repeated(builder, shape[1]))
        with steps(builder, shape[1], 1) as (k, _):
            vector = lanes.lookup.gathered(context, builder, kind, values[0], builder.add(starts, repeated(builder, k)))
            place = builder.mul(k, ir.Constant(BITS, lanes.WIDTH))
            address = builder.bitcast(builder.gep(found, [place]), vector.type.as_pointer())
            builder.store(vector, address, align=kind.dtype.bitwidth // 8)
        return context.get_dummy_value()

    # In the place of the first implementation, because numba takes that one of two for the same types.
    registered = numba.core.imputils.builtin_registry.functions
    mine = [one for one in registered if one[1] is lanes.spread]
    assert len(mine) == 1
    registered[registered.index(mine[0])] = (gathered, *mine[0][1:])


PATCH

import grpo_theory as gt
import grpo_theory.simulate
loaded = time.process_time() - begin


def gradients(name, replications, n_prompts=4, group_size=8):
    problem = gt.gallery.problem(name)
    sizes = {"batch_size": n_prompts, "group_size": group_size, "rng": 1, "workers": 1, "replications": replications}
    return lambda: gt.simulate_gradients(problem, problem.theta, ["rloo", "grpo"], **sizes)


def training(name, estimator, replications, steps, n_prompts=4, group_size=8):
    problem = gt.gallery.problem(name)
    sizes = {"batch_size": n_prompts, "group_size": group_size, "rng": 1, "workers": 1, "replications": replications}
    return lambda: gt.simulate_training(problem, problem.theta, estimator, gt.Constant(0.1), steps=steps, **sizes)


WORK = {
    "gradients": (gradients("tabular", 40_000), 40_000 * 32),
    "linear gradients": (gradients("linear", 40_000), 40_000 * 32),
    "penalised gradients": (gradients("kl-tabular", 20_000), 20_000 * 32),
    "gradients in groups of 64": (gradients("tabular", 40_000, 8, 64), 40_000 * 512),
    "training": (training("linear", "rloo", 512, 200), 512 * 200 * 32),
    "training in groups of 4": (training("kl-tabular", "rloo", 512, 400, 1, 4), 512 * 400 * 4),
    "penalised training": (training("kl-linear", "grpo", 512, 100), 512 * 100 * 32),
    "a short call": (gradients("tabular", 128), 128 * 32),
}
first = 0.0
for work, _ in WORK.values():
    start = time.process_time()
    work()
    first += time.process_time() - start
print(json.dumps({"import": loaded, "first calls": first}), flush=True)
for line in sys.stdin:
    work, size = WORK[line.strip()]
    start = time.process_time()
    work()
    print(1e9 * (time.process_time() - start) / size, flush=True)
'''
WORK = re.findall(r'^    "(.*)": \((?:gradients|training)', PROGRAM, re.MULTILINE)


class Process:
    """A process with a patch, which compiles, and then does some work whenever it is asked."""

    def __init__(self, patch: str, cache: Path) -> None:
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(TOP)}
        program = PROGRAM.replace("PATCH\n", textwrap.dedent(patch) + "\n", 1)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen([sys.executable, "-c", program], env=environment, **pipes)  # type: ignore[call-overload]
        self.facts = json.loads(self._answer())

    def _answer(self) -> str:
        line: str = self._process.stdout.readline()
        if not line:
            raise RuntimeError("it failed, as is said above")
        return line

    def nanoseconds(self, work: str) -> float:
        """Do some work, and return what a response took of the processor's time."""
        self._process.stdin.write(f"{work}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def end(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()


def started(patch: str, times: int) -> tuple[Process, dict[str, float]]:
    """Return a process that has compiled, and the least that several of them took to compile and to load."""
    facts: dict[str, list[float]] = {"import": [], "first calls": [], "first calls from the cache": []}
    for _ in range(times):
        with tempfile.TemporaryDirectory() as folder:
            process = Process(patch, Path(folder))
            facts["first calls"].append(process.facts["first calls"])
            process.end()
            process = Process(patch, Path(folder))
            facts["import"].append(process.facts["import"])
            facts["first calls from the cache"].append(process.facts["first calls"])
            if len(facts["import"]) < times:
                process.end()
    return process, {name: min(seconds) for name, seconds in facts.items()}


def main() -> None:
    """Print one line for each trick that is switched off."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PATCHES, default=list(PATCHES))
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--compilations", type=int, default=2)
    asked = parser.parse_args()
    whole, base = started("", asked.compilations)
    print(f"{'all tricks':<34}", *(f"{name} {seconds:.3g} s" for name, seconds in base.items()), sep="  ", flush=True)
    for name in asked.only:
        try:
            process, facts = started(PATCHES[name], asked.compilations)
        except RuntimeError as error:
            print(f"{name:<34} {error}", flush=True)
            continue
        print(f"{name:<34}", *(f"{key} {facts[key] / base[key]:.2f}" for key in base), sep="  ", end="  ", flush=True)
        for work in WORK:
            for _ in range(WARMING):
                process.nanoseconds(work)
            pairs = [(whole.nanoseconds(work), process.nanoseconds(work)) for _ in range(asked.rounds)]
            ratio = median(other / mine for mine, other in pairs)
            print(f"{work} {ratio:.2f} of {min(pairs)[0]:.3g} ns", end="  ", flush=True)
        print(flush=True)
        process.end()
    whole.end()


if __name__ == "__main__":
    main()
