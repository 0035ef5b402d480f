"""The whole compiler on one page. Read this first.

    call -> capture -> [differentiate -> optimize -> partition] -> write in place -> link
                         each graph: lower -> fuse -> plan -> emit -> load

`compile` makes a functional graph of a call, or a forward and a backward; `build` makes its kernels, and the host
function that launches them. `link` renders the calling convention around them.
"""

from __future__ import annotations

from assay.compiler.assembly.compilers import Compilers
from assay.compiler.assembly.halves import graphs_of, halve
from assay.compiler.assembly.linking import link, load_call, specialized
from assay.compiler.assembly.targets import targets_of
from assay.compiler.autograd.joint import differentiate
from assay.compiler.autograd.partition import Split
from assay.compiler.capture.functionalize import capture
from assay.compiler.capture.inputs import Call
from assay.compiler.codegen.host import emit
from assay.compiler.codegen.source import source_of
from assay.compiler.ir.graph.captured import Captured
from assay.compiler.ir.graph.roles import GraphCall, Program
from assay.compiler.ir.loops.kernel import Schedule
from assay.compiler.ir.loops.live_memory import live_bytes
from assay.compiler.ir.loops.text import show
from assay.compiler.journal import Journal
from assay.compiler.ops import lower
from assay.compiler.options import Options
from assay.compiler.passes.runner import optimize, written
from assay.compiler.schedule.fuse import fuse
from assay.compiler.schedule.order import plan
from assay.compiler.schedule.products import Choose
from assay.compiler.toolchain.load import LoadKernels, load_kernels, measured_choice
from assay.compiler.toolchain.serialized_call import Host


def compile(call: Call, compilers: Compilers, journal: Journal) -> GraphCall:
    """A call, compiled. The result takes the call's leaves as one list and returns its flat results.

    Raises: Unsupported for a program that the compiler cannot take.
    """
    with journal.stage("capture"):
        captured = capture(call, compilers.decompositions)
    if captured.needs_gradient:
        halves = halve(captured, call, compilers, journal, divide)
        linked, graphs = halves.linked, graphs_of(halves, compilers)
    else:
        program = optimize(captured.finish(), compilers.passes, journal, "captured")
        program = written(program, compilers.write, journal)
        linked = link(program, call)
        graphs = {"graph": compilers.inference(program)}
        if compilers.keep is not None:
            compilers.keep(linked, {"graph": program})
    others = specialized(compile, call, compilers, linked.versions, journal.options)
    return load_call(linked, graphs, others, journal)


def divide(captured: Captured, compilers: Compilers, journal: Journal) -> Split:
    """A recorded call as forward and backward, still functional."""
    with journal.stage("differentiate"):
        joint = differentiate(captured)
    joint = optimize(joint, compilers.passes, journal, "joint")
    with journal.stage("partition"):
        split = compilers.partition(joint)
    journal.decided(split.decisions)
    return split


def build(
    program: Program,
    options: Options,
    journal: Journal,
    load_kernels: LoadKernels = load_kernels,
    choose: Choose | None = None,
) -> Host:
    """A functional graph as one host function over kernels and ATen. `choose`: products of ours, else measured."""
    schedule = schedule_of(program, options, journal, choose)
    with journal.stage("emit"):
        source = emit(schedule)
    journal.state("source_graph", lambda: source)
    journal.state("source_kernels", lambda: "\n".join(map(source_of, schedule.kernels)))
    with journal.stage("build kernels"):
        kernels = load_kernels(schedule.kernels, options)
    journal.count(schedule.counts, len(schedule.kernels))
    journal.kernels(schedule)
    return Host(source, schedule.constants, kernels, schedule.counts, schedule.steps)


def schedule_of(program: Program, options: Options, journal: Journal, choose: Choose | None = None) -> Schedule:
    """The steps of a functional graph: its kernels, fused and ordered, and the calls between them."""
    with journal.stage("lower"):
        lowered = lower(program, targets_of(options), is_exact=options.numerics == "exact")
    with journal.stage("fuse"):
        fused = fuse(lowered, options.numerics != "fast", options.fusions)
    with journal.stage("plan"):
        schedule = plan(fused, program.after_call, choose or measured_choice(options, journal))
    journal.planned(program.is_backward, lambda given: live_bytes(schedule.steps, program.values, given))
    journal.state("schedule", lambda: "\n\n".join(show(kernel) for kernel in schedule.kernels))
    return schedule
