/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the planner's claims: what they cannot be, whatever a search found.
 *
 * Problem: nothing computes again what plans under other options and budgets take, or by what
 * method this one was found, so a file might claim anything. Method: such values must agree with
 * the rest of the file, which is already checked (said.c): a ladder descends and contains this
 * plan; what a remedy saves is the difference of two sizes; what fits follows from the budget; the
 * size that was taken is the largest that fits; methods are those of the planner. Left undone:
 * whether those other plans can be made at all. */
#include "report/json_in.h"
#include "report/saved.h"

#include <stdlib.h>
#include <string.h>

struct words {
    struct ul_json_reader *json;
    struct ul_saved saved;
    uint64_t step_cost;
    uint64_t sample_count; /* of a step; 0: not known */
    bool bounds_process;   /* the budget bounds the process */
};

static enum ul_status fail(const struct words *words, const char *key, uint32_t entry,
                           const char *what)
{
    UL_ASSERT(what[0] != '\0');
    const char *where =
        entry == UL_PLAN_NONE ? "" : ul_arena_printf(words->json->arena, ", entry %u,", entry);
    return ul_diag_set(words->json->diag, UL_MISMATCH, "\"%s\"%s %s", key, where, what);
}

static uint64_t bounded_bytes(const struct words *words, uint64_t reserved, uint64_t process)
{
    return words->bounds_process ? process : reserved;
}

/* ---- methods ---- */

/* NAME, or NAME: followed by details. */
static bool is_method(enum ul_method_kind kind, uint32_t count, const char *text)
{
    for (uint32_t i = 0; i < count; i++) {
        const char *name = ul_method_get(kind, i)->name;
        size_t length = strlen(name);
        if (strncmp(text, name, length) == 0 && (text[length] == '\0' || text[length] == ':'))
            return true;
    }
    return false;
}

/* A method of recomputation, a note on transfers, or both. */
static bool is_remat(const struct words *words)
{
    const char *text = words->saved.method.remat;
    const char *moves = strstr(text, "transfers: ");
    if (moves == NULL)
        return is_method(UL_METHOD_REMAT, UL_REMAT_COUNT, text);
    const char *own = ul_arena_printf(words->json->arena, "transfers: %llu saves, %llu loads",
                                      (unsigned long long)words->saved.transfers.saves,
                                      (unsigned long long)words->saved.transfers.loads);
    return strcmp(moves, own) == 0 &&
           (moves == text || is_method(UL_METHOD_REMAT, UL_REMAT_COUNT, text));
}

static enum ul_status check_methods(const struct words *words)
{
    const struct ul_saved *saved = &words->saved;
    if (!is_method(UL_METHOD_ORDER, UL_ORDER_COUNT, saved->method.order))
        return fail(words, "method.order", UL_PLAN_NONE, "is no method of ordering steps");
    if (!is_remat(words))
        return fail(words, "method.remat", UL_PLAN_NONE,
                    "is no method of recomputation, or not these transfers");
    if (!is_method(UL_METHOD_PACK, UL_PACK_COUNT, saved->method.pack))
        return fail(words, "method.pack", UL_PLAN_NONE, "is no method of packing");
    return UL_OK;
}

/* ---- the ladder ---- */

/* Plans of a ladder have one stream; a second one may have made this plan faster. */
static bool is_own_rung(const struct words *words, const struct ul_saved_rung *rung)
{
    if (words->saved.launches.on_second_stream > 0)
        return rung->reserved_bytes >= words->saved.reserved_bytes &&
               rung->process_bytes >= words->saved.process_bytes && rung->cost >= words->saved.cost;
    return rung->reserved_bytes == words->saved.reserved_bytes &&
           rung->process_bytes == words->saved.process_bytes && rung->cost == words->saved.cost;
}

/* Every byte less costs more, or the same where steps run by alternatives with other bits. A
 * program with other splits or layouts may take less time than the plan without a budget, which
 * still comes first. */
static bool is_dearer(const struct ul_saved_rung *rungs, uint32_t i)
{
    const struct ul_saved_rung *rung = &rungs[i];
    bool is_other = rung->splits + rung->row_major + rung->inside > 0;
    return i == 0 || rung->cost >= rungs[i - 1].cost || (i == 1 && is_other);
}

static enum ul_status check_ladder(const struct words *words)
{
    const struct ul_saved *saved = &words->saved;
    uint64_t above = UINT64_MAX, budget = saved->budget_bytes == 0 ? above : saved->budget_bytes;
    uint32_t chosen = UL_PLAN_NONE;
    if (!saved->has_ladder)
        return UL_OK;
    for (uint32_t i = 0; i < saved->rung_count; i++) {
        const struct ul_saved_rung *rung = &saved->ladder[i];
        uint64_t bytes = bounded_bytes(words, rung->reserved_bytes, rung->process_bytes);
        if (bytes >= above)
            return fail(words, "ladder", i, "takes no fewer bytes than the one before");
        if (!is_dearer(saved->ladder, i))
            return fail(words, "ladder", i, "costs less than the one before");
        if (chosen == UL_PLAN_NONE && bytes <= budget)
            chosen = i;
        above = bytes;
    }
    if (saved->rung_count == 0 || saved->ladder[0].cost != saved->base_cost)
        return fail(words, "ladder", 0, "is not of \"base_cost\", as without a budget");
    if (above != saved->smallest_budget_bytes)
        return fail(words, "ladder", saved->rung_count - 1,
                    "is not of \"smallest_budget_bytes\", as the last is");
    chosen = chosen == UL_PLAN_NONE ? saved->rung_count - 1 : chosen;
    if (!is_own_rung(words, &saved->ladder[chosen]))
        return fail(words, "ladder", chosen, "is not this plan, which is the first that fits");
    return UL_OK;
}

/* ---- remedies ---- */

/* The bytes of the plan with which the remedy compares its own; UINT64_MAX: with none. A process of
 * another owner is not compared, and an older ullage compared buffers unless a budget was given for
 * the program's own process. */
static uint64_t compared_bytes(const struct words *words, const struct ul_saved_remedy *remedy)
{
    const struct ul_saved *saved = &words->saved;
    bool is_whole = saved->process[UL_SAVED_CODE] > 0 || saved->process[UL_SAVED_RUNTIME] > 0;
    bool may_be_older = saved->budget_bytes == 0 || !is_whole;
    bool is_other = remedy->process_of[0] != '\0';
    int64_t of_buffer = (int64_t)words->saved.reserved_bytes - (int64_t)remedy->reserved_bytes;
    int64_t of_process = (int64_t)words->saved.process_bytes - (int64_t)remedy->process_bytes;
    if (words->bounds_process && !is_other && remedy->saved_bytes == of_process)
        return words->saved.process_bytes;
    if (remedy->saved_bytes == of_buffer && (!words->bounds_process || is_other || may_be_older))
        return words->saved.reserved_bytes;
    return UINT64_MAX;
}

static enum ul_status check_remedy(const struct words *words, uint32_t index)
{
    static const char budget_option[] = "--budget ";
    const struct ul_saved *saved = &words->saved;
    const struct ul_saved_remedy *remedy = &saved->remedies[index];
    uint64_t bytes = bounded_bytes(words, remedy->reserved_bytes, remedy->process_bytes);
    bool closes = remedy->fits && !saved->fits && !remedy->applied;
    bool is_alike = !words->bounds_process || remedy->process_of[0] == '\0';
    int64_t spared = remedy->applied ? -remedy->saved_bytes : remedy->saved_bytes;
    uint64_t own = compared_bytes(words, remedy);
    if (own == UINT64_MAX)
        return fail(words, "remedies", index, "saves not what its plan takes less than this one");
    if (!is_alike && !closes)
        return fail(words, "remedies", index, "is of another's process, and does not make it fit");
    if (remedy->fits != (saved->budget_bytes == 0 || bytes <= saved->budget_bytes))
        return fail(words, "remedies", index, "\"fits\" contradicts the budget");
    if (!closes && spared <= (int64_t)own / 1000)
        return fail(words, "remedies", index, "saves less than a thousandth");
    if (strstr(remedy->change, "--dim ") ==
            NULL && /* else the times are for different numbers of samples */
        remedy->extra_cost != (int64_t)remedy->cost - (int64_t)words->step_cost)
        return fail(words, "remedies", index, "\"extra_cost\" does not follow from \"cost\"");
    if (strncmp(remedy->change, budget_option, sizeof budget_option - 1) == 0 &&
        strtoull(remedy->change + sizeof budget_option - 1, NULL, 10) != bytes)
        return fail(words, "remedies", index, "is for a budget of other bytes than its plan takes");
    return UL_OK;
}

static enum ul_status check_remedies(const struct words *words)
{
    const struct ul_saved *saved = &words->saved;
    for (uint32_t i = 0; i < saved->remedy_count; i++) {
        UL_TRY(check_remedy(words, i));
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(saved->remedies[k].change, saved->remedies[i].change) == 0)
                return fail(words, "remedies", i, "is one that stands before it");
    }
    if (saved->remedies_tried > UL_REPORT_CHANGES ||
        saved->remedy_count > saved->remedies_tried + UL_REPORT_RUNGS)
        return fail(words, "remedies_tried", UL_PLAN_NONE,
                    "is no number of plans that these remedies may be of");
    return UL_OK;
}

/* ---- searches for a size ---- */

/* "NAME=SIZE" and "INPUT=SIZExN..." say that the size was taken; `name` NULL: for any name. */
static bool is_taken(const struct words *words, const char *name, uint64_t size)
{
    for (uint32_t i = 0; i < words->saved.option_count; i++) {
        const struct ul_report_option *option = &words->saved.options[i];
        const char *equals = strrchr(option->value, '=');
        bool is_size = strcmp(option->name, "dim") == 0 ||
                       (name == NULL && strcmp(option->name, "shape") == 0);
        if (is_size && equals != NULL && strtoull(equals + 1, NULL, 10) == size &&
            (name == NULL || (strlen(name) == (size_t)(equals - option->value) &&
                              strncmp(option->value, name, strlen(name)) == 0)))
            return true;
    }
    return false;
}

static uint64_t option_number(const struct words *words, const char *name)
{
    const char *value = ul_saved_option(&words->saved, name);
    return value != NULL ? strtoull(value, NULL, 10) : 1;
}

/* The plan of that size that was tried, or NULL. */
static const struct ul_saved_tried *find_tried(const struct ul_saved_search *search, uint64_t size)
{
    for (uint32_t i = 0; i < search->tried_count; i++)
        if (search->planned[i].size == size)
            return &search->planned[i];
    return NULL;
}

static enum ul_status check_tried(const struct words *words, const char *key,
                                  const struct ul_saved_search *search)
{
    uint64_t own = bounded_bytes(words, words->saved.reserved_bytes, words->saved.process_bytes);
    const struct ul_saved_tried *taken = find_tried(search, search->size);
    for (uint32_t i = 0; i < search->tried_count; i++) {
        if (find_tried(search, search->planned[i].size) != &search->planned[i])
            return fail(words, key, i, "has been planned before");
        if (search->planned[i].fits != (search->planned[i].bytes <= words->saved.budget_bytes))
            return fail(words, key, i, "\"fits\" contradicts the budget");
    }
    if (taken == NULL || !taken->fits || taken->bytes != own)
        return fail(words, key, UL_PLAN_NONE, "does not have this plan among those planned");
    return UL_OK;
}

static enum ul_status check_largest(const struct words *words, bool is_batch)
{
    const struct ul_saved *saved = &words->saved;
    const struct ul_saved_search *search = is_batch ? &saved->max_batch : &saved->max_dim;
    const char *key = is_batch ? "max_batch" : "max_dim";
    if (!(is_batch ? saved->has_max_batch : saved->has_max_dim))
        return UL_OK;
    UL_TRY(check_tried(words, key, search));
    bool is_bounded = !is_batch && search->why_not_larger[0] != '\0';
    for (uint32_t i = 0; i < search->tried_count; i++) {
        const struct ul_saved_tried *tried = &search->planned[i];
        if (tried->fits && tried->size > search->size)
            return fail(words, key, i, "is larger, and fits");
        is_bounded = is_bounded || (!is_batch && !tried->fits && tried->size > search->size);
    }
    if (is_batch) {
        const struct ul_saved_tried *next =
            find_tried(search, search->size + option_number(words, "micro-batches"));
        is_bounded = next != NULL && !next->fits;
    }
    if (!is_bounded)
        return fail(words, key, UL_PLAN_NONE, "names no larger size that does not fit");
    if (!is_taken(words, is_batch ? NULL : search->name, search->size) ||
        (is_batch && words->sample_count > 0 && words->sample_count != search->size))
        return fail(words, key, UL_PLAN_NONE, "is not the size of this plan");
    return UL_OK;
}

static enum ul_status check_micro_batches(const struct words *words)
{
    static const char key[] = "micro_batches";
    const struct ul_saved_search *search = &words->saved.micro_batches;
    uint64_t samples = words->sample_count > 0 ? words->sample_count : 1;
    if (!words->saved.has_micro_batches)
        return UL_OK;
    UL_TRY(check_tried(words, key, search));
    for (uint32_t i = 0; i < search->tried_count; i++) {
        const struct ul_saved_tried *tried = &search->planned[i];
        if (tried->size == 0 || samples % tried->size != 0)
            return fail(words, key, i, "does not divide the batch");
        if (tried->fits && tried->cost < words->step_cost)
            return fail(words, key, i, "fits, and takes less time than what was taken");
    }
    if (find_tried(search, search->size)->cost != words->step_cost ||
        search->size != option_number(words, "micro-batches"))
        return fail(words, key, UL_PLAN_NONE, "is not the number of this plan");
    return UL_OK;
}

enum ul_status ul_report_check_words(struct ul_json_reader *json, uint64_t sample_count)
{
    struct words words = {.json = json, .sample_count = sample_count};
    struct ul_saved *saved = &words.saved;
    UL_TRY(ul_facts_read(json, saved));
    words.bounds_process = strcmp(saved->budget_of, "process") == 0;
    words.step_cost = saved->step_cost > 0 ? saved->step_cost : saved->cost;
    UL_TRY(check_methods(&words));
    UL_TRY(check_ladder(&words));
    UL_TRY(check_remedies(&words));
    UL_TRY(check_largest(&words, true));
    UL_TRY(check_largest(&words, false));
    return check_micro_batches(&words);
}
