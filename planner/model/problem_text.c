/* SPDX-License-Identifier: Apache-2.0 */
/* The text form of a problem: printed, and read back to the same bytes. planner/README.md has the
 * grammar. Each object has a line of its own with its id, which counts from 0; omitted fields have
 * their defaults. Names are untrusted bytes, in quotes. */
#include "planner/model/model_internal.h"
#include "planner/model/problem.h"

#include <inttypes.h>
#include <string.h>

static const char *const class_names[UL_PLAN_CLASS_COUNT] = {
    [UL_PLAN_WEIGHTS] = "weights",
    [UL_PLAN_OPTIMIZER] = "optimizer_state",
    [UL_PLAN_GRADIENTS] = "gradients",
    [UL_PLAN_SAVED] = "activations_kept_for_backward",
    [UL_PLAN_ACTIVATIONS] = "other_activations",
    [UL_PLAN_SCRATCH] = "scratch",
    [UL_PLAN_INPUTS] = "inputs",
    [UL_PLAN_OUTPUTS] = "outputs",
};

static const char *const region_names[] = {[UL_PLAN_SEQUENCE] = "sequence",
                                           [UL_PLAN_BRANCH] = "branch",
                                           [UL_PLAN_LOOP] = "loop",
                                           [UL_PLAN_ENTRY] = "entry"};
enum { REGION_KIND_COUNT = sizeof region_names / sizeof *region_names };

static const char *const resource_names[] = {
    [UL_PLAN_COMPUTE] = "compute", [UL_PLAN_ENGINE] = "copy", [UL_PLAN_LINK] = "link"};
enum { RESOURCE_KIND_COUNT = sizeof resource_names / sizeof *resource_names };

const char *ul_plan_class_name(enum ul_plan_class class)
{
    UL_ASSERT((unsigned)class < UL_PLAN_CLASS_COUNT);
    return class_names[class];
}

bool ul_plan_class_accept(struct ul_scan *scan, enum ul_plan_class *class)
{
    for (uint32_t i = 0; i < UL_PLAN_CLASS_COUNT; i++) {
        *class = (enum ul_plan_class)i;
        if (ul_scan_accept_word(scan, class_names[i]))
            return true;
    }
    return false;
}

/* ---- Printing ---- */

static void put_name(struct ul_text *text, const char *name)
{
    if (name == NULL)
        return;
    ul_text_put(text, " ");
    ul_text_quote(text, name, strlen(name));
}

/* A word and a number, unless the number is the default. */
static void put_number(struct ul_text *text, const char *word, uint64_t number, uint64_t unsaid)
{
    if (number != unsaid)
        ul_text_printf(text, " %s %" PRIu64, word, number);
}

static void put_flag(struct ul_text *text, const char *word, bool flag)
{
    if (flag)
        ul_text_printf(text, " %s", word);
}

static void put_ids(struct ul_text *text, const char *word, const uint32_t *ids, uint32_t count)
{
    put_flag(text, word, count > 0);
    for (uint32_t i = 0; i < count; i++)
        ul_text_printf(text, " %u", ids[i]);
}

static void put_resource(struct ul_text *text, const struct ul_plan_resource *row, uint32_t id)
{
    ul_text_printf(text, "resource %u", id);
    put_name(text, row->name);
    ul_text_printf(text, " %s stream %u", resource_names[row->kind], row->stream);
    put_number(text, "space", row->space, 0);
    put_number(text, "bandwidth", row->bandwidth_mb, 0);
    put_number(text, "latency", row->latency_cost, 0);
    ul_text_put(text, "\n");
}

static void put_value(struct ul_text *text, const struct ul_plan_value *value, uint32_t id)
{
    ul_text_printf(text, "value %u", id);
    put_name(text, value->name);
    ul_text_printf(text, " %s %" PRIu64, ul_plan_class_name(value->class), value->size_bytes);
    put_number(text, "align", value->alignment_bytes, 0);
    put_number(text, "space", value->space, 0);
    put_number(text, "region", value->span_region, UL_PLAN_NONE);
    put_flag(text, "persistent", value->persistent);
    put_flag(text, "optional", value->optional);
    put_flag(text, "from-start", value->live_from_start);
    put_flag(text, "to-end", value->live_to_end);
    put_flag(text, "once", value->never_recompute);
    put_flag(text, "stays", value->stays);
    put_flag(text, "first-bank", value->in_first_bank);
    if (value->pinned)
        ul_text_printf(text, " at %" PRIu64, value->pinned_offset_bytes);
    ul_text_put(text, "\n");
}

static void put_substep(struct ul_text *text, const struct ul_plan_substep *substep)
{
    ul_text_put(text, "    substep");
    put_ids(text, "reads", substep->reads, substep->read_count);
    put_ids(text, "writes", substep->writes, substep->write_count);
    put_flag(text, "in-place", substep->in_place_count > 0);
    for (uint32_t i = 0; i < substep->in_place_count; i++)
        ul_text_printf(text, " %u:%u", substep->in_place[i].output, substep->in_place[i].input);
    put_number(text, "scratch", substep->scratch_bytes, 0);
    put_number(text, "align", substep->scratch_alignment_bytes, 0);
    put_number(text, "space", substep->scratch_space, 0);
    put_flag(text, "traffic", substep->traffic != NULL);
    for (uint32_t i = 0;
         substep->traffic != NULL && i <= substep->read_count + substep->write_count; i++)
        ul_text_printf(text, " %" PRIu64, substep->traffic[i]);
    ul_text_put(text, "\n");
}

/* Without a cost, a step costs the time in which its resource moves the bytes. */
static uint64_t unsaid_cost(const struct ul_problem *problem,
                            const struct ul_plan_alternative *alternative)
{
    uint32_t r = alternative->resource;
    return r == 0 || r >= problem->resource_count
               ? 0
               : ul_resource_cost(&problem->resources[r], alternative->moved_bytes);
}

static void put_step(struct ul_text *text, const struct ul_problem *problem, uint32_t id)
{
    const struct ul_plan_step *step = &problem->steps[id];
    ul_text_printf(text, "step %u", id);
    put_name(text, step->name);
    put_number(text, "region", step->region, 0);
    put_ids(text, "after", step->predecessors, step->predecessor_count);
    ul_text_put(text, "\n");
    for (uint32_t a = 0; a < step->alternative_count + step->spare_count; a++) {
        const struct ul_plan_alternative *alternative = &step->alternatives[a];
        ul_text_put(text, a < step->alternative_count ? "  alternative" : "  spare");
        put_name(text, alternative->name);
        put_number(text, "on", alternative->resource, 0);
        put_number(text, "moves", alternative->moved_bytes, 0);
        put_number(text, "cost", alternative->cost, unsaid_cost(problem, alternative));
        put_number(text, "stack", alternative->stack_bytes, 0);
        put_flag(text, "other-bits", alternative->other_bits);
        ul_text_put(text, "\n");
        for (uint32_t i = 0; i < alternative->substep_count; i++)
            put_substep(text, &alternative->substeps[i]);
    }
}

void ul_problem_print(struct ul_text *text, const struct ul_problem *problem)
{
    ul_text_put(text, "problem 1\n");
    if (problem->base_cost != 0)
        ul_text_printf(text, "cost %" PRIu64 "\n", problem->base_cost);
    for (uint32_t i = 0; i < problem->space_count; i++) {
        ul_text_printf(text, "space %u", i);
        put_name(text, problem->spaces[i].name);
        put_number(text, "capacity", problem->spaces[i].capacity_bytes, 0);
        put_flag(text, "beside", problem->spaces[i].is_overhead);
        ul_text_put(text, "\n");
    }
    for (uint32_t i = 1; i < problem->resource_count; i++)
        put_resource(text, &problem->resources[i], i);
    for (uint32_t i = 0; i < problem->bank_count; i++) {
        const struct ul_plan_bank *bank = &problem->banks[i];
        ul_text_printf(text, "bank %u", i);
        put_name(text, bank->name);
        ul_text_printf(text, " capacity %" PRIu64, bank->capacity_bytes);
        put_number(text, "bandwidth", bank->bandwidth_mb, 0);
        put_flag(text, "weights", bank->weights);
        ul_text_put(text, "\n");
    }
    for (uint32_t i = 1; i < problem->region_count; i++)
        ul_text_printf(text, "region %u %s in %u\n", i, region_names[problem->regions[i].kind],
                       problem->regions[i].parent);
    for (uint32_t i = 0; i < problem->value_count; i++)
        put_value(text, &problem->values[i], i);
    for (uint32_t i = 0; i < problem->step_count; i++)
        put_step(text, problem, i);
}

/* ---- Parsing ---- */

struct parser {
    struct ul_scan scan;
    struct ul_arena scratch;
    struct ul_problem *problem;
};

enum ul_status ul_model_text_id(struct ul_scan *scan, uint32_t next)
{
    uint32_t id;
    UL_TRY(ul_scan_u32(scan, UL_PLAN_NONE, &id));
    return id == next ? UL_OK : ul_scan_fail(scan, "the next id before this");
}

static enum ul_status parse_name(struct parser *p, const char **name)
{
    *name = NULL;
    if (!ul_scan_sees(&p->scan, "\""))
        return UL_OK;
    return ul_scan_string(&p->scan, name);
}

/* The word's number, if the word comes here. */
static enum ul_status parse_number(struct parser *p, const char *word, uint64_t *number)
{
    return ul_scan_accept_word(&p->scan, word) ? ul_scan_u64(&p->scan, number) : UL_OK;
}

enum ul_status ul_model_text_option(struct ul_scan *scan, const char *word, uint32_t *number)
{
    return ul_scan_accept_word(scan, word) ? ul_scan_u32(scan, UL_PLAN_NONE, number) : UL_OK;
}

/* Ids after a word, up to the next word; they are verified at the end. */
static enum ul_status parse_ids(struct parser *p, const char *word, const uint32_t **ids,
                                uint32_t *count)
{
    uint32_t *list = NULL;
    uint32_t capacity = 0;
    if (!ul_scan_accept_word(&p->scan, word))
        return UL_OK;
    do {
        UL_GROW(&p->scratch, list, *count, capacity);
        UL_TRY(ul_scan_u32(&p->scan, UL_PLAN_NONE, &list[*count]));
        ++*count;
    } while (ul_scan_sees_number(&p->scan));
    *ids = list;
    return UL_OK;
}

static enum ul_status parse_in_place(struct parser *p, struct ul_plan_substep *substep)
{
    struct ul_plan_in_place *list = NULL;
    uint32_t capacity = 0;
    if (!ul_scan_accept_word(&p->scan, "in-place"))
        return UL_OK;
    do {
        UL_GROW(&p->scratch, list, substep->in_place_count, capacity);
        struct ul_plan_in_place *option = &list[substep->in_place_count++];
        UL_TRY(ul_scan_u32(&p->scan, UL_PLAN_NONE, &option->output));
        UL_TRY(ul_scan_expect(&p->scan, ":"));
        UL_TRY(ul_scan_u32(&p->scan, UL_PLAN_NONE, &option->input));
    } while (ul_scan_sees_number(&p->scan));
    substep->in_place = list;
    return UL_OK;
}

static enum ul_status parse_traffic(struct parser *p, struct ul_plan_substep *substep)
{
    uint64_t count = (uint64_t)substep->read_count + substep->write_count + 1;
    if (!ul_scan_accept_word(&p->scan, "traffic"))
        return UL_OK;
    uint64_t *traffic = UL_NEW_ARRAY(&p->scratch, uint64_t, count);
    for (uint64_t i = 0; i < count; i++)
        UL_TRY(ul_scan_u64(&p->scan, &traffic[i]));
    substep->traffic = traffic;
    return UL_OK;
}

static enum ul_status parse_substep(struct parser *p, struct ul_plan_substep *substep)
{
    memset(substep, 0, sizeof *substep);
    UL_TRY(parse_ids(p, "reads", &substep->reads, &substep->read_count));
    UL_TRY(parse_ids(p, "writes", &substep->writes, &substep->write_count));
    UL_TRY(parse_in_place(p, substep));
    UL_TRY(parse_number(p, "scratch", &substep->scratch_bytes));
    UL_TRY(parse_number(p, "align", &substep->scratch_alignment_bytes));
    UL_TRY(ul_model_text_option(&p->scan, "space", &substep->scratch_space));
    UL_TRY(parse_traffic(p, substep));
    return ul_scan_end_line(&p->scan);
}

static enum ul_status parse_alternative(struct parser *p, struct ul_plan_alternative *alternative)
{
    struct ul_plan_substep *substeps = NULL;
    uint32_t capacity = 0;
    memset(alternative, 0, sizeof *alternative);
    UL_TRY(parse_name(p, &alternative->name));
    UL_TRY(ul_model_text_option(&p->scan, "on", &alternative->resource));
    UL_TRY(parse_number(p, "moves", &alternative->moved_bytes));
    alternative->cost = unsaid_cost(p->problem, alternative);
    UL_TRY(parse_number(p, "cost", &alternative->cost));
    UL_TRY(parse_number(p, "stack", &alternative->stack_bytes));
    alternative->other_bits = ul_scan_accept_word(&p->scan, "other-bits");
    UL_TRY(ul_scan_end_line(&p->scan));
    while (ul_scan_accept_word(&p->scan, "substep")) {
        UL_GROW(&p->scratch, substeps, alternative->substep_count, capacity);
        UL_TRY(parse_substep(p, &substeps[alternative->substep_count++]));
    }
    alternative->substeps = substeps;
    return UL_OK;
}

static enum ul_status parse_step(struct parser *p)
{
    struct ul_plan_step step;
    struct ul_plan_alternative *alternatives = NULL;
    uint32_t capacity = 0;
    memset(&step, 0, sizeof step);
    UL_TRY(ul_model_text_id(&p->scan, p->problem->step_count));
    UL_TRY(parse_name(p, &step.name));
    UL_TRY(ul_model_text_option(&p->scan, "region", &step.region));
    UL_TRY(parse_ids(p, "after", &step.predecessors, &step.predecessor_count));
    UL_TRY(ul_scan_end_line(&p->scan));
    while (ul_scan_accept_word(&p->scan, "alternative")) {
        UL_GROW(&p->scratch, alternatives, step.alternative_count, capacity);
        UL_TRY(parse_alternative(p, &alternatives[step.alternative_count++]));
    }
    while (step.alternative_count > 0 && ul_scan_accept_word(&p->scan, "spare")) {
        uint32_t count = step.alternative_count + step.spare_count;
        UL_GROW(&p->scratch, alternatives, count, capacity);
        UL_TRY(parse_alternative(p, &alternatives[count]));
        step.spare_count++;
    }
    step.alternatives = alternatives;
    ul_problem_add_step(p->problem, &step);
    ul_arena_reset(&p->scratch);
    return UL_OK;
}

static enum ul_status parse_value(struct parser *p)
{
    struct ul_plan_value value = ul_plan_value_make(NULL, UL_PLAN_WEIGHTS, 0);
    UL_TRY(ul_model_text_id(&p->scan, p->problem->value_count));
    UL_TRY(parse_name(p, &value.name));
    if (!ul_plan_class_accept(&p->scan, &value.class))
        return ul_scan_fail(&p->scan, "a class");
    UL_TRY(ul_scan_u64(&p->scan, &value.size_bytes));
    UL_TRY(parse_number(p, "align", &value.alignment_bytes));
    UL_TRY(ul_model_text_option(&p->scan, "space", &value.space));
    UL_TRY(ul_model_text_option(&p->scan, "region", &value.span_region));
    value.persistent = ul_scan_accept_word(&p->scan, "persistent");
    value.optional = ul_scan_accept_word(&p->scan, "optional");
    value.live_from_start = ul_scan_accept_word(&p->scan, "from-start");
    value.live_to_end = ul_scan_accept_word(&p->scan, "to-end");
    value.never_recompute = ul_scan_accept_word(&p->scan, "once");
    value.stays = ul_scan_accept_word(&p->scan, "stays");
    value.in_first_bank = ul_scan_accept_word(&p->scan, "first-bank");
    value.pinned = ul_scan_accept_word(&p->scan, "at");
    if (value.pinned)
        UL_TRY(ul_scan_u64(&p->scan, &value.pinned_offset_bytes));
    ul_problem_add_value(p->problem, &value);
    return ul_scan_end_line(&p->scan);
}

/* One of these words. */
static enum ul_status parse_word(struct parser *p, const char *const *words, uint32_t count,
                                 const char *wanted, uint32_t *word)
{
    *word = 0;
    while (*word < count && !ul_scan_accept_word(&p->scan, words[*word]))
        ++*word;
    return *word < count ? UL_OK : ul_scan_fail(&p->scan, wanted);
}

static enum ul_status parse_region(struct parser *p)
{
    uint32_t kind;
    uint32_t parent;
    UL_TRY(ul_model_text_id(&p->scan, p->problem->region_count));
    UL_TRY(
        parse_word(p, region_names, REGION_KIND_COUNT, "sequence, branch, loop or entry", &kind));
    UL_TRY(ul_scan_expect(&p->scan, "in"));
    UL_TRY(ul_scan_u32(&p->scan, p->problem->region_count, &parent));
    ul_problem_add_region(p->problem, (enum ul_plan_region_kind)kind, parent);
    return ul_scan_end_line(&p->scan);
}

/* Space 0 exists from the beginning, and gets its name here. The words for engines are short forms
 * of their rows. */
static enum ul_status parse_space(struct parser *p, uint32_t id)
{
    struct ul_plan_offload offload = {.name = NULL};
    UL_TRY(ul_model_text_id(&p->scan, id));
    UL_TRY(parse_name(p, &offload.name));
    UL_TRY(parse_number(p, "capacity", &offload.capacity_bytes));
    UL_TRY(parse_number(p, "bandwidth", &offload.bandwidth_mb));
    UL_TRY(parse_number(p, "latency", &offload.latency_cost));
    if (id > 0 && ul_scan_accept_word(&p->scan, "transfers")) {
        offload.duplex = ul_scan_accept_word(&p->scan, "duplex");
        ul_problem_add_offload(p->problem, &offload);
    } else if (id > 0) {
        ul_problem_add_space(p->problem, NULL, 0);
    }
    struct ul_plan_space *space = &p->problem->spaces[id];
    space->name = offload.name;
    space->capacity_bytes = offload.capacity_bytes;
    space->is_overhead = ul_scan_accept_word(&p->scan, "beside");
    return ul_scan_end_line(&p->scan);
}

static enum ul_status parse_resource(struct parser *p)
{
    struct ul_plan_resource row = {.name = NULL};
    uint32_t kind;
    UL_TRY(ul_model_text_id(&p->scan, p->problem->resource_count));
    UL_TRY(parse_name(p, &row.name));
    UL_TRY(parse_word(p, resource_names, RESOURCE_KIND_COUNT, "compute, copy or link", &kind));
    row.kind = (enum ul_plan_resource_kind)kind;
    UL_TRY(ul_model_text_option(&p->scan, "stream", &row.stream));
    UL_TRY(ul_model_text_option(&p->scan, "space", &row.space));
    UL_TRY(parse_number(p, "bandwidth", &row.bandwidth_mb));
    UL_TRY(parse_number(p, "latency", &row.latency_cost));
    ul_problem_add_resource(p->problem, &row);
    return ul_scan_end_line(&p->scan);
}

/* Their capacity is that of space 0, which comes before them. */
static enum ul_status parse_banks(struct parser *p)
{
    struct ul_plan_bank *banks = NULL;
    uint32_t count = 0, capacity = 0;
    while (ul_scan_accept_word(&p->scan, "bank")) {
        struct ul_plan_bank bank = {.name = NULL};
        UL_TRY(ul_model_text_id(&p->scan, count));
        UL_TRY(parse_name(p, &bank.name));
        UL_TRY(parse_number(p, "capacity", &bank.capacity_bytes));
        UL_TRY(parse_number(p, "bandwidth", &bank.bandwidth_mb));
        bank.weights = ul_scan_accept_word(&p->scan, "weights");
        UL_TRY(ul_scan_end_line(&p->scan));
        UL_GROW(p->problem->arena, banks, count, capacity);
        banks[count++] = bank;
    }
    p->problem->banks = banks;
    p->problem->bank_count = count;
    return UL_OK;
}

static enum ul_status parse_problem(struct parser *p)
{
    UL_TRY(ul_scan_expect(&p->scan, "problem 1"));
    UL_TRY(ul_scan_end_line(&p->scan));
    if (ul_scan_accept_word(&p->scan, "cost")) {
        UL_TRY(ul_scan_u64(&p->scan, &p->problem->base_cost));
        UL_TRY(ul_scan_end_line(&p->scan));
    }
    if (ul_scan_accept_word(&p->scan, "join")) { /* short form of a row */
        struct ul_plan_resource row = {.kind = UL_PLAN_COMPUTE, .stream = 1};
        UL_TRY(ul_scan_u64(&p->scan, &row.latency_cost));
        ul_problem_add_resource(p->problem, &row);
        UL_TRY(ul_scan_end_line(&p->scan));
    }
    for (uint32_t id = 0; ul_scan_accept_word(&p->scan, "space"); id++)
        UL_TRY(parse_space(p, id));
    while (ul_scan_accept_word(&p->scan, "resource"))
        UL_TRY(parse_resource(p));
    UL_TRY(parse_banks(p));
    while (ul_scan_accept_word(&p->scan, "region"))
        UL_TRY(parse_region(p));
    while (ul_scan_accept_word(&p->scan, "value"))
        UL_TRY(parse_value(p));
    while (ul_scan_accept_word(&p->scan, "step"))
        UL_TRY(parse_step(p));
    if (*p->scan.at != '\0')
        return ul_scan_fail(&p->scan, "another space, resource, region, value or step");
    return UL_OK;
}

bool ul_model_text_begins(const char *text, uint64_t size_bytes, const char *word)
{
    const char *at = text, *end = text + size_bytes;
    for (;;) {
        while (at < end && *at == ' ')
            at++;
        const char *line_end = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
        if (line_end == NULL || (*at != '#' && at != line_end))
            break;
        at = line_end + 1;
    }
    size_t length = strlen(word);
    return (size_t)(end - at) > length && memcmp(at, word, length) == 0 && at[length] == ' ';
}

bool ul_problem_is_text(const char *text, uint64_t size_bytes)
{
    return ul_model_text_begins(text, size_bytes, "problem");
}

enum ul_status ul_problem_parse(struct ul_arena *arena, const char *text, uint64_t size_bytes,
                                struct ul_problem **problem, struct ul_diag *diag)
{
    struct parser p = {.problem = ul_problem_new(arena)};
    UL_TRY(ul_scan_open(&p.scan, arena, text, size_bytes, diag));
    ul_arena_init(&p.scratch);
    enum ul_status status = parse_problem(&p);
    ul_arena_done(&p.scratch);
    if (status == UL_OK)
        status = ul_problem_verify(p.problem, diag);
    *problem = p.problem;
    return status;
}
