# SPDX-License-Identifier: Apache-2.0
"""What stands at the top of plan.json, written from report/facts.def by report_facts --update."""


class Needed:
    """In every plan."""

    format: str
    version: int
    tool: str
    model: str
    model_sha256: str
    target: str
    reserved_bytes: int
    order_lower_bound_bytes: int
    lower_bound_bytes: int
    alignment_bytes: int
    fits: bool
    proven: bool
    optimal: bool
    stopped_by_time: bool
    smallest_budget_bytes: int
    peak_step: int
    cost: int
    base_cost: int
    overhead: float
    options: list
    rows: dict
    steps: dict
    ranges: dict


class Facts(Needed):
    """In plans that have something to say of it."""

    opset: int
    process_bytes: int
    process: dict
    process_of: str
    process_peak_at_start: bool
    process_lacks: list
    orders_lower_bound_bytes: int
    budget_bytes: int
    device: dict
    budget_of: str
    library: str
    cudnn: str
    flash: dict
    cost_bound: int
    cost_bound_method: str
    optimal_within: str
    max_batch: dict
    max_dim: dict
    micro_batches: dict
    models: list
    sizes: list
    pieces: list
    least_reserved_bytes: int
    training: dict
    step_cost: int
    method: dict
    for_library: dict
    launches: dict
    weights_by_type: dict
    in_floats: list
    transfers: dict
    for_precision: dict
    stays_f32: list
    blockers: list
    remedies_tried: int
    remedies: list
    ladder: list
    banks: list
    bank_cost: int
    bank_cost_bound: int
    spaces: dict
