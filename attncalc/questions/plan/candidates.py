"""A candidate: one replica, which is what `fit` answers for its GPUs, and how many of the users'
requests it runs.
"""

from ...engines.engine import Refusal
from ...errors import AttncalcError
from ...hardware import Gpu
from ...records import NamedTuple
from ...serving.devices import devices_with_room
from ...serving.fit import Deployment, Verdict
from ...serving.load_bounds import NETWORK, Load, Steps
from ...serving.request import FitRequest, ResolvedRequest, resolve
from ...serving.users import Users, users
from .space import Split


class Candidate(NamedTuple):
    """One replica."""

    resolved: ResolvedRequest  # the complete request for its GPUs
    split: Split  # how these share the model
    verdict: Verdict  # whether one request of the context fits
    concurrency: Users  # the requests that run concurrently on the replica
    capacity: int | None  # requests that it serves concurrently, on average; None without a limit
    worst_capacity: int | None  # those that it serves at worst; None without a limit
    # {sequences of a step: the passes}, which `served_load` has computed for it
    computed: dict[int, Steps]
    limited_by: str  # what limits them: 'cache', the engine's option, '--ttft' or '--tpot'

    @property
    def gpu(self) -> Gpu:
        assert self.resolved.gpu is not None
        return self.resolved.gpu

    def load(self, requests: int, network: int = NETWORK) -> Load:
        """Return so many concurrent requests of the users, with the part of a shared prefix that is
        cached, and the bytes/s of a GPU's network.
        """
        traffic = self.concurrency.traffic
        if self.concurrency.shares_prefix:
            shared = traffic.shared_tokens / traffic.prompt
        else:
            shared = 0.0
        return Load(requests, traffic.prompt, traffic.output, shared, network)

    @property
    def group(self) -> tuple[str, str, str | None, str | None]:
        """What rows are compared within: the model, the GPU, and the dtypes of weights and
        cache.
        """
        request = self.resolved.request
        return request.model.name, self.gpu.rented, request.weights_dtype, request.workload.kv_dtype


def replica(request: FitRequest, split: Split) -> list[Candidate]:
    """Return one replica; none if it does not fit, or serves no request.

    Raises AttncalcError as `fit` does, and if the engine does not start so.
    """
    resolved = resolve(request)
    batch = resolved.workload.batch
    context = resolved.workload.context
    devices = devices_with_room(resolved, batch, context)
    if devices is None:
        _raise(resolved.refusal)
        return []
    deployment = Deployment(resolved, devices)
    _raise(deployment.refusal(context))
    verdict = deployment.verdict(batch, context)
    if verdict == "does_not_fit":
        return []
    concurrency = users(resolved, deployment=deployment)
    assert concurrency is not None
    if concurrency.average == 0:
        return []
    limit = deployment.devices[0].layout.max_num_seqs
    limited_by = "cache"
    if limit is not None and concurrency.average == limit:
        limited_by = resolved.engine.running_option
    return [
        Candidate(
            resolved,
            split,
            verdict,
            concurrency,
            capacity=_of_replicas(resolved, concurrency.average),
            worst_capacity=_of_replicas(resolved, concurrency.worst),
            computed={},
            limited_by=limited_by,
        )
    ]


def _raise(refusal: Refusal | None) -> None:
    """Raise AttncalcError for a refusal, if there is one."""
    if refusal:
        raise AttncalcError(refusal.reason, refusal.tip_of_error)


def _of_replicas(resolved: ResolvedRequest, sequences: int | None) -> int | None:
    """Return the requests of all data-parallel ranks, of which each runs so many sequences."""
    if sequences is None:
        return None
    return int(sequences) * resolved.replicas
