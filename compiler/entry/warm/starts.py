"""Warm starts: a call that some process has compiled before is made from what was kept of it.

    compile ->  fingerprint -> found: restore               the program is not recorded
                            -> not found: compile, keep     and once more when backward has been built

What no fingerprint covers is compiled afresh and counted, with the reason, in the journal. A restored call records its
program only when it needs a graph that was not kept: a backward that nobody had run, or one without some tangents.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torch import fx

from assay.compiler import journal as journals
from assay.compiler.assembly.compilers import Compilers
from assay.compiler.assembly.halves import Halves, halve, higher_order, inlined, lazily, recorded_backward
from assay.compiler.assembly.linking import load_call, specialized
from assay.compiler.autograd.partition import split_at
from assay.compiler.capture.ambient import Ambient
from assay.compiler.capture.functionalize import capture
from assay.compiler.capture.inputs import Call
from assay.compiler.codegen.call.gradients.forward_half import SavedValues
from assay.compiler.entry.warm.fingerprint import fingerprint
from assay.compiler.entry.warm.size_guards import SizeGuards
from assay.compiler.errors import Unkeyed, VerifyError
from assay.compiler.ir.graph.recording_lock import recording_lock
from assay.compiler.ir.graph.roles import GraphCall, Program
from assay.compiler.journal import Journal
from assay.compiler.options import Options
from assay.compiler.pipeline import compile, divide
from assay.compiler.runtime.call import check_versions
from assay.compiler.runtime.partial_backward import Part, PartialBackward
from assay.compiler.toolchain import cache
from assay.compiler.toolchain.serialized_call import Host, KeptCall, KeptHost, KeptPart, Linked, dumps, loads


@dataclass(slots=True)
class Keeper:
    """Keeps one call: told of its text and of each graph that is built for it, it writes down what it has.

    `key` is None for a call that is not kept. `hosts` are what the cache holds of its graphs, by their names;
    `parts` of the backwards without some tangents, by the tangents that are given.
    """

    key: str | None
    options: Options
    hosts: dict[str, KeptHost] = field(default_factory=dict)
    parts: dict[frozenset[int], KeptPart] = field(default_factory=dict)
    sizes: SizeGuards | None = None
    guards: str = ""
    _linked: Linked | None = None
    _programs: Mapping[str, Program] = field(default_factory=dict)
    _built: list[tuple[Program, Host, GraphCall]] = field(default_factory=list)

    def built(self, program: Program, host: Host, graph: GraphCall) -> None:
        if self.key is not None:
            self._built.append((program, host, graph))
            self._write_hosts()

    def linked(self, linked: Linked, programs: Mapping[str, Program]) -> None:
        if self.key is not None and self._is_guarded():
            self._linked, self._programs = linked, programs
            if linked.partial is not None:
                linked.partial.made = self.part
            self._write_hosts()

    def _is_guarded(self) -> bool:
        """Notes what the compile assumed of sizes; of a restored call that is known. False where it has no text."""
        try:
            if self.sizes is not None:
                self.guards = self.sizes.added()
        except Unkeyed as reason:
            self.forget(str(reason))
        return self.key is not None

    def _saved(self) -> SavedValues:
        """The values that forward saves, without the symbols of this process."""
        forward = self._programs.get("forward_graph")
        return SavedValues((), ()) if forward is None else replace(SavedValues.of(forward), symbols=())

    def part(self, given: frozenset[int], part: Part) -> None:
        """A backward without some tangents was built."""
        host = next((host for _, host, graph in self._built if graph is part.graph), None)
        if host is not None:
            self._write({}, {given: (part, host)})

    def forget(self, reason: str) -> None:
        """The call is not kept, and that is counted."""
        journals.count_uncached(reason)
        self.key = None

    def _write_hosts(self) -> None:
        """Writes what there is as soon as there is a text, which comes when all but backward has been built."""
        names = {id(program): name for name, program in self._programs.items()}
        built = ((names.get(id(program)), host) for program, host, _ in self._built)
        fresh = {name: host for name, host in built if name is not None and name not in self.hosts}
        if fresh:
            self._write(fresh, {})

    def _write(self, hosts: Mapping[str, Host], parts: Mapping[frozenset[int], tuple[Part, Host]]) -> None:
        if self._linked is None or self.key is None:
            return
        try:
            self.hosts.update({name: KeptHost.of(host) for name, host in hosts.items()})
            self.parts.update({given: KeptPart.of(part, host) for given, (part, host) in parts.items()})
            data = dumps(KeptCall.of(self._linked, self.hosts, self.parts, self.guards, self._saved()))
        except Unkeyed as reason:
            self.forget(str(reason))
        else:
            cache.keep(self.options.cache, self.key, data)


def keeper(gm: fx.GraphModule, call: Call, options: Options, is_own: bool = True) -> Keeper:
    """The keeper of a call; of one that is not to be kept, it does nothing.

    `is_own`: our own kernels run its graphs, not somebody else's.
    """
    made = Keeper(None, options)
    if not options.warm or not is_own:
        return made
    if options.debug or options.dump or journals.is_heard():
        made.forget("its states are asked for")
        return made
    try:
        made.sizes = SizeGuards.of(call.leaves, call.fake_mode.shape_env)
        made.key = fingerprint(gm, call.leaves, options, made.sizes.before())
    except Unkeyed as reason:
        made.forget(str(reason))
    return made


def restore(kept_by: Keeper, call: Call, compilers: Compilers, journal: Journal) -> GraphCall | None:
    """The call, as it was kept; None where it was not, or not all of it is there."""
    data = cache.read(journal.options.cache, kept_by.key) if kept_by.key is not None else None
    if data is None:
        return None
    try:
        kept = loads(data)
    except Unkeyed as reason:
        journals.say_once(f"assay: {reason}; the call is compiled again")
        return None
    if kept_by.sizes is None or not kept_by.sizes.hold(kept.guards):
        return None
    graphs = _graphs(kept, kept_by, call, compilers, journal)
    if graphs is None:
        return None
    kept_by.sizes, kept_by.guards = None, kept.guards
    kept_by.hosts.update(kept.hosts)
    kept_by.parts.update(kept.parts)
    journals.count_restored()
    for host in kept.hosts.values():
        journal.count(host.counts, len(host.kernels))
    again = specialized(compile, call, compilers, kept.versions, journal.options)
    return load_call(kept.linked, graphs, again, journal)


def _graphs(
    kept: KeptCall, kept_by: Keeper, call: Call, compilers: Compilers, journal: Journal
) -> dict[str, object] | None:
    """What the text of the call names as its graphs; None where the kernels of one that runs first are gone."""
    if kept.partial is None:
        graph = kept.hosts["graph"].run(journal.options)
        return None if graph is None else {"graph": graph}
    forward = kept.hosts["forward_graph"].run(journal.options)
    if forward is None:
        return None
    late = _Late(kept, call, compilers, journal, Ambient.now())
    own = kept.partial
    parts = {given: late.kept_part(given, part) for given, part in kept.parts.items()}
    record = recorded_backward(call, compilers, journal, divide, kept.saved)
    recorded = lazily(record)
    partial = PartialBackward(
        late.part, own.layouts, own.zeros, check_versions, own.results, parts, kept_by.part, recorded
    )
    higher = higher_order(own.roots, own.results, call, compilers, late.forward, journal)
    return {
        "forward_graph": forward,
        "backward_graph": lazily(late.backward),
        "partial_backward": partial,
        "higher_order": higher,
        "recorded_backward": recorded,
        "inlined_backward": inlined(record),
    }


@dataclass(slots=True)
class _Late:
    """The graphs of a restored call that are made when they are first asked for."""

    kept: KeptCall
    call: Call
    compilers: Compilers
    journal: Journal
    ambient: Ambient
    _halves: Halves | None = None

    def backward(self) -> GraphCall:
        """The kept one; or, where nobody had run it yet, one that is built now, and kept with the rest."""
        host = self.kept.hosts.get("backward_graph")
        found = host.run(self.journal.options) if host is not None else None
        return found or self.compilers.backward(self.recorded().split.backward)

    def forward(self) -> Program:
        """What the gradients of the call's gradients are recorded over."""
        return self.recorded().split.forward

    def part(self, given: frozenset[int]) -> Part:
        """A backward without some tangents that was not kept."""
        return self.recorded().partial.make(given)

    def kept_part(self, given: frozenset[int], kept: KeptPart) -> Part:
        """One that was; its graph is loaded when it first runs."""

        def graph() -> GraphCall:
            loaded = kept.host.run(self.journal.options)
            if loaded is None:
                return self.part(given).graph
            self.journal.count(kept.host.counts, len(kept.host.kernels))
            return loaded

        rest = kept.arguments, kept.written, kept.gradients, kept.tensors, kept.inputs
        return Part(lazily(graph), *rest, views=kept.views)

    def recorded(self) -> Halves:
        """The program, recorded as it was for the kept call: under the modes of the call.

        What is cheap to make again depends on how large symbolic sizes were when the call was kept. So a program that
        is cut elsewhere now is cut once more, where it was then.
        Raises: VerifyError if it is another program now, which the fingerprint should have told.
        """
        with recording_lock:
            if self._halves is None:
                halves = self._recorded_with(self.compilers)
                if halves.linked.text != self.kept.text:
                    cut = functools.partial(split_at, names=self.kept.saved.names)
                    halves = self._recorded_with(replace(self.compilers, partition=cut))
                if halves.linked.text != self.kept.text:
                    raise VerifyError("a kept call is not what its program compiles to")
                self._halves = halves
                if self.compilers.keep is not None:
                    programs = {"forward_graph": halves.split.forward, "backward_graph": halves.split.backward}
                    self.compilers.keep(halves.linked, programs)
            return self._halves

    def _recorded_with(self, compilers: Compilers) -> Halves:
        with self.ambient.restored():
            captured = capture(self.call, compilers.decompositions)
            return halve(captured, self.call, compilers, self.journal, divide)
