"""Mistakes that no run shows, or only one that hangs, by a look at the source of modules and loops.

Rules read syntax alone: a net is what an optimizer has the parameters of, and ranks are what names say.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lockstep.base.files import short_path
from lockstep.check.report import Finding

LIBRARIES = ("torch", "lightning", "pytorch_lightning", "torchmetrics", "builtins", "abc", "typing")
COLLECTIVE = re.compile(
    r"(all_(reduce|gather|to_all)\w*|reduce_scatter\w*|barrier|broadcast_object_list|wait_for_everyone)$"
    r"|(dist|distributed)\.(broadcast|reduce|gather|scatter)\w*$|trainer\.save_checkpoint$"
)
WRAPPER = re.compile(r"(^|\.)(DistributedDataParallel|DDP|FullyShardedDataParallel|FSDP)$")
FIRST = r"[\[(](-1, 0|0, -1)[\])]"  # -1 is the rank without a process group


@dataclass(frozen=True)
class Call:
    """A call of `owner.method`, and its place.

    loops: those around it. ranks: "0" or "others", if these alone reach it. no_grad: whether it has no gradients.
    """

    node: ast.Call
    owner: str = ""
    method: str = ""
    loops: tuple[ast.AST, ...] = ()
    ranks: str = ""
    no_grad: bool = False

    @property
    def name(self) -> str:
        return f"{self.owner}.{self.method}".lstrip(".")

    def has(self, argument: str) -> bool:
        return argument in map(ast.unparse, self.node.keywords)


Calls = Sequence[Call]
Mistakes = Iterator[tuple[Call, str, str]]
"""Calls, each with the cause and what to change."""


def look(*objects: Any) -> list[Finding]:
    """Return the mistakes in the source of functions, of Python modules, and of classes or instances with their bases.

    Objects without source, and bases from libraries, are passed over.
    """
    findings = []
    for thing in objects:
        kind = thing if inspect.isroutine(thing) or inspect.ismodule(thing) or inspect.isclass(thing) else type(thing)
        bases = inspect.getmro(kind)[1:] if inspect.isclass(kind) else ()
        for part in (kind, *(base for base in bases if base.__module__.partition(".")[0] not in LIBRARIES)):
            try:
                lines, first = inspect.getsourcelines(part)
                tree, file = ast.parse(textwrap.dedent("".join(lines))), short_path(inspect.getfile(part))
            except (OSError, TypeError, SyntaxError):  # compiled, typed in a shell, or a part of a line
                continue
            for scope in _scopes(tree):
                calls = [*_calls(scope, Call(ast.Call(ast.Name(""), [], [])))]
                for call, cause, advice in (mistake for rule in RULES for mistake in rule(calls, scope)):
                    where = f"{file}:{call.node.lineno + max(first, 1) - 1}"
                    findings.append(Finding("source", where=where, cause=cause, advice=advice))
    return findings


def _scopes(tree: ast.Module) -> list[ast.AST]:
    """Return the functions and classes, in which a name is one thing, and the rest."""
    named = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    return [*named, ast.Module([node for node in tree.body if node not in named], [])]


def _calls(node: ast.AST, place: Call) -> Iterator[Call]:
    """Yield the calls within a node, which stands at a place."""
    if isinstance(node, ast.Call):
        owner, _, method = ast.unparse(node.func).rpartition(".")
        yield replace(place, node=node, owner=owner, method=method)
    places = dict.fromkeys(ast.iter_child_nodes(node), place)
    if isinstance(node, ast.For | ast.While):
        places |= dict.fromkeys(node.body, replace(place, loops=(*place.loops, node)))
    elif isinstance(node, ast.With) and re.search("no_grad|inference_mode", ast.unparse(node.items[0])):
        places |= dict.fromkeys(node.body, replace(place, no_grad=True))
    elif isinstance(node, ast.FunctionDef) and "rank_zero_only" in " ".join(map(ast.unparse, node.decorator_list)):
        places |= dict.fromkeys(node.body, replace(place, ranks="0"))
    elif isinstance(node, ast.If) and (ranks := _ranks_of(node.test)):
        places |= dict.fromkeys(node.body, replace(place, ranks=ranks))
        places |= dict.fromkeys(node.orelse, replace(place, ranks="others" if ranks == "0" else "0"))
    for child, at in places.items():
        yield from _calls(child, at)


def _ranks_of(test: ast.expr) -> str:
    """Return which ranks a condition lets pass: "0", "others", or "" if it does not tell them apart."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return next(filter(None, map(_ranks_of, test.values)), "")
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return {"0": "others", "others": "0", "": ""}[_ranks_of(test.operand)]
    text = ast.unparse(test)
    if re.search(rf"rank(\(\))? (== 0|in {FIRST})$|is_(global_zero|(local_)?main_process)$", text):
        return "0"
    return "others" if re.search(rf"rank(\(\))? (!= 0|> 0|not in {FIRST})$|^rank$", text) else ""


def _wrapped(tree: ast.AST) -> dict[str, str]:
    """Return the nets that are wrapped for several ranks, by the name of the wrapper."""
    wrapped = {}
    for node in (each for each in ast.walk(tree) if isinstance(each, ast.Assign)):
        for call in ast.walk(node.value):
            if isinstance(call, ast.Call) and call.args and WRAPPER.search(ast.unparse(call.func)):
                wrapped[ast.unparse(node.targets[0])] = ast.unparse(call.args[0])
    return wrapped


def _trained(calls: Calls, tree: ast.AST) -> set[str]:
    """Return the names of the nets that an optimizer steps."""
    creations = " ".join(ast.unparse(call.node) for call in calls if call.method[:1].isupper() or "optim" in call.name)
    names = {call.owner for call in calls if call.method == "parameters" and f"{call.name}(" in creations}
    return names.union(*(pair for pair in _wrapped(tree).items() if names & {*pair}))


def _trains(call: Call, calls: Calls, depth: int = 0) -> bool:
    """Whether a loop around a call, by default the outermost, has a backward pass."""
    return bool(call.loops) and any(each.method == "backward" and call.loops[depth] in each.loops for each in calls)


def set_epoch_missing(calls: Calls, tree: ast.AST) -> Mistakes:
    loops = [call.loops[0] for call in calls if call.method == "backward" and call.loops[1:]]
    has_epochs = any(re.search(r"range\(|epoch", ast.unparse(loop).split("\n")[0]) for loop in loops)
    if has_epochs and all(call.method != "set_epoch" for call in calls):
        for call in calls:
            if call.method == "DistributedSampler" and not call.has("shuffle=False"):
                yield call, "set_epoch is not called, so each epoch has the same order", "call sampler.set_epoch(epoch)"


def rank_0_alone(calls: Calls, tree: ast.AST) -> Mistakes:
    others = {call.name for call in calls if call.ranks == "others"}
    for call in (call for call in calls if call.ranks == "0"):
        if call.has("sync_dist=True") and not call.has("rank_zero_only=True"):
            yield call, "rank 0 alone logs with sync_dist, and waits for the other ranks", "log on every rank"
        elif (COLLECTIVE.search(call.name) or is_metric(call)) and call.name not in others:
            yield call, f"rank 0 alone calls {call.name}, and waits for the other ranks", "call it on every rank"


def is_metric(call: Call) -> bool:
    """Whether a call computes a metric, probably of torchmetrics, which gathers its state from all ranks."""
    return call.method == "compute" and call.owner.startswith("self.") and not call.node.args + call.node.keywords


def train_missing(calls: Calls, tree: ast.AST) -> Mistakes:
    trained = _trained(calls, tree)
    right = {call.loops[:1] for call in calls if call.method == "train" and call.owner in trained}
    for call in calls:
        if call.method == "eval" and call.owner in trained and _trains(call, calls) and call.loops[:1] not in right:
            yield call, "train is not called after eval, so training goes on in eval mode", f"call {call.owner}.train()"


def eval_missing(calls: Calls, tree: ast.AST) -> Mistakes:
    if re.search("Dropout|BatchNorm", ast.unparse(tree)) and not {"eval", "train"} & {call.method for call in calls}:
        for call in calls:
            is_validation = call.no_grad and _trains(call, calls) and not _trains(call, calls, depth=-1)
            if is_validation and call.name in _trained(calls, tree):
                yield call, "eval is not called, so the validation is in training mode", f"call {call.name}.eval()"


def past_the_wrapper(calls: Calls, tree: ast.AST) -> Mistakes:
    for wrapper, net in _wrapped(tree).items():
        for call in (call for call in calls if _trains(call, calls) and not call.no_grad):
            if call.name == f"{wrapper}.module" or (call.name == net and net != wrapper):
                yield call, "DDP.forward is not called, so gradients stay on their ranks", f"call {wrapper}(…)"


RULES = (set_epoch_missing, rank_0_alone, train_missing, eval_missing, past_the_wrapper)
