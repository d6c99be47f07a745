"""Promotion of a registered model to champion if it is better than the champion, and the ways back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pipelines.config import PipelineConfig, load_config
from pipelines.evaluation import Rsum
from pipelines.evaluation.commands import check_named
from pipelines.registry.models import CHALLENGER, CHAMPION, aliases_of, current_version, registry_client, tags_of
from pipelines.runtime.cli import console, make_parser, say
from pipelines.runtime.stage import StageError, StageReport, manifest_in
from preprocessing.reading import is_of_machine
from vse_core.digests import DigestError

NAME = "promote"
DECISION_TAG, BEFORE_TAG = "vse.decision", "vse.champion_before"


@dataclass(frozen=True)
class Decision:
    """A decision about a challenger, and the version that it was compared with, if any."""

    promoted: bool
    challenger: int
    champion: int | None
    reason: str


def judge(config: PipelineConfig, reference: str | None = None) -> Decision:
    """Promote a challenger of the configured model as `promote`, by evaluations on the configuration's data."""
    from pipelines.evaluation.named_models import NamedModel, compare_models, measure_model  # torch

    def compare(first: str, second: str) -> StageReport:
        return compare_models(NamedModel.find(first, config), NamedModel.find(second, config))

    return promote(
        config.registered_model,
        config.tracking_uri,
        config.registry.guards,
        compare,
        lambda challenger: measure_model(NamedModel.find(challenger, config)),
        reference,
    )


def promote(
    name: str,
    uri: str,
    guards: Mapping[str, float],
    compare: Callable[[str, str], StageReport],
    measure: Callable[[str], Rsum],
    reference: str | None = None,
) -> Decision:
    """Compare a challenger with the champion, and promote it if it is better; the decision becomes a tag.

    `guards` says by how much a metric may fall; `compare` takes two references, the challenger's first, which is by
    default the alias "challenger"; `measure` takes a challenger without a champion to be compared with, which has to be
    better than chance. A champion that cannot be loaded counts as none. If the champion changes meanwhile, the
    challenger is compared with the new one. Raises StageError if the challenger does not exist, cannot be
    loaded or does not fit the features, or if a guarded metric is unknown.
    """
    challenger = challenger_of(name, reference, uri)
    _require_loadable(name, challenger, uri)
    before, reason = aliases_of(name, uri).get(CHAMPION), "the first model: there was no champion"
    champion = before
    if champion not in (None, challenger) and (problem := unreadable(f"{name}/{champion}", uri)):
        reason = f"the champion, version {champion}, cannot be loaded and counts as none: {problem}"
        console(stderr=True).print(f"{name}: {reason}", soft_wrap=True)
        champion = None
    if champion is None:
        decision = _first(measure(f"{name}/{challenger}"), challenger, reason)
    elif champion == challenger:
        return Decision(False, challenger, champion, "it is the champion already")
    else:
        decision = _contest(compare(f"{name}/{challenger}", f"{name}/{champion}"), guards, challenger, champion)
    if aliases_of(name, uri).get(CHAMPION) != before:  # somebody rolled back while they were compared
        return promote(name, uri, guards, compare, measure, f"{name}/{challenger}")
    client = registry_client(uri)
    client.set_model_version_tag(name, str(challenger), DECISION_TAG, decision.reason)
    if decision.promoted:
        if champion is not None:
            client.set_model_version_tag(name, str(challenger), BEFORE_TAG, str(champion))
        client.set_registered_model_alias(name, CHAMPION, str(challenger))
    return decision


def challenger_of(name: str, reference: str | None, uri: str) -> int:
    """Return the version that a reference means, by default "challenger"; StageError if the model lacks it."""
    pinned, _ = current_version(reference or f"{name}@{CHALLENGER}", uri)
    found, _, version = pinned.partition("/")
    if found != name:
        raise StageError(
            f"{NAME}: {reference} is not a version of {name}, the model of the configuration: give that of {found}, "
            f"or --set registry.name={found}"
        )
    return int(version)


def unreadable(reference: str, uri: str) -> str | None:
    """Return why search and the service cannot load a registered model, if so; RegistryError if there is none.

    Raises SearchError if the cause is the machine and not the model: memory ran out, say.
    """
    from pipelines.retrieval.search_model import SearchError, load_search_model  # torch and FAISS

    try:
        load_search_model(reference, uri)
    except (DigestError, SearchError) as error:
        if is_of_machine(error):
            raise
        return str(error)
    return None


def _require_loadable(name: str, version: int, uri: str) -> None:
    """Raise StageError if a version cannot be loaded: nobody could search with such a champion."""
    if problem := unreadable(f"{name}/{version}", uri):
        raise StageError(f"{NAME}: {name}/{version} cannot be champion, as it cannot be loaded: {problem}")


def clear(name: str, uri: str) -> int:
    """Leave a model without a champion; returns the version that was champion. Raises StageError if none was."""
    champion = aliases_of(name, uri).get(CHAMPION)
    if champion is None:
        raise StageError(f"{NAME}: the registered model {name!r} has no champion to clear")
    client = registry_client(uri)
    client.delete_registered_model_alias(name, CHAMPION)
    client.set_model_version_tag(name, str(champion), DECISION_TAG, "is no longer the champion: cleared")
    return champion


def rollback(name: str, uri: str) -> tuple[int, int]:
    """Make the previous champion champion again; returns old and new. StageError if none can be restored."""
    champion = aliases_of(name, uri).get(CHAMPION)
    if champion is None:
        raise StageError(f"{NAME}: the registered model {name!r} has no champion to go back from")
    before = tags_of(name, champion, uri).get(BEFORE_TAG)
    if before is None:
        raise StageError(f"{NAME}: {name}/{champion} has replaced no champion: there is none to go back to")
    _require_loadable(name, int(before), uri)
    client = registry_client(uri)
    client.set_registered_model_alias(name, CHAMPION, before)
    client.set_model_version_tag(name, str(champion), DECISION_TAG, f"rolled back to version {before}")
    return champion, int(before)


def _first(rsum: Rsum, challenger: int, reason: str) -> Decision:
    if rsum.low > rsum.chance:
        return Decision(True, challenger, None, f"{reason}; {rsum}")
    return Decision(False, challenger, None, f"{reason}, but it is not better than chance: {rsum}")


def _contest(report: StageReport, guards: Mapping[str, float], challenger: int, champion: int) -> Decision:
    manifest = manifest_in(report.directory)
    _, _, difference, low, high, _ = manifest["recalls"]["rsum"]
    found = f"RSUM {difference:+.1f} ({low:+.1f} to {high:+.1f}) against version {champion}"
    fallen = guarded_falls(guards, *manifest["metrics"])
    if low <= 0:
        return Decision(False, challenger, champion, f"{found}: not better by more than chance")
    if fallen:
        return Decision(False, challenger, champion, f"{found}, but {' and '.join(fallen)}")
    return Decision(True, challenger, champion, f"{found}: better")


def guarded_falls(
    guards: Mapping[str, float], challenger: Mapping[str, float], champion: Mapping[str, float]
) -> list[str]:
    """Describe each guarded metric that has fallen by more than its limit; StageError if the evaluation lacks one."""
    fallen = []
    for name, limit in guards.items():
        if name not in challenger or name not in champion:
            known = ", ".join(sorted(set(challenger) & set(champion)))
            raise StageError(f"{NAME}: registry.guards: the evaluation has no metric {name!r}; it has {known}")
        fall = champion[name] - challenger[name]
        if fall > limit:
            fallen.append(f"{name} falls by {fall:.1f}, more than {limit:g}")
    return fallen


def main() -> None:
    """Read the command line, and promote a version, roll back, or clear the champion."""
    parser = make_parser()
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--model", metavar="MODEL", help="the challenger (default: NAME@challenger, the newest)")
    action.add_argument("--rollback", action="store_true", help="make the champion before this one champion again")
    action.add_argument("--clear", action="store_true", help="take the champion's alias away")
    options = parser.parse_args()
    config = load_config(options.config, options.set)
    name, uri = config.registered_model, config.tracking_uri
    if options.dry_run and (options.rollback or options.clear):
        say(f"would {'roll back' if options.rollback else 'clear the champion of'} {name}")
    elif options.dry_run:
        say(f"would judge {check_named(f'{name}/{challenger_of(name, options.model, uri)}', config)}")
    elif options.clear:
        say(f"{name} has no champion now, in place of version {clear(name, uri)}")
    elif options.rollback:
        lost, won = rollback(name, uri)
        say(f"{name}/{won} is champion again, in place of version {lost}")
    else:
        decision = judge(config, options.model)
        verdict = "is champion now" if decision.promoted else "is not promoted"
        say(f"{name}/{decision.challenger} {verdict}: {decision.reason}")
