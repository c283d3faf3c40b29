/* SPDX-License-Identifier: 0BSD */
/*
 * A failure as one line of text, for people: what is not of the command line alone.
 * C99 and its library.
 */
#ifndef UL_FAILURE_H
#define UL_FAILURE_H

#include "ul_model.h"

#include <inttypes.h>
#include <stdio.h>

/* Of UL_DATA_FAULT; `step` names it. As snprintf: what is too long for the text is cut, and the
   length of the whole is the result. */
static inline int ul_fault_text(char *text, size_t bytes, const struct ul_failure *failure,
                                const char *step)
{
    if (failure->fault == UL_FAULT_BRANCH)
        return snprintf(text, bytes,
                        "step %s is in a branch that cannot have the shapes that were compiled; "
                        "outputs that come from it are 0",
                        step);
    if (failure->fault == UL_FAULT_COUNT)
        return snprintf(text, bytes,
                        "step %s met the count %" PRId64 ", planned are at most %" PRId64
                        "; it was clamped, the outputs are those of the clamped value",
                        step, failure->fault_value, failure->fault_limit);
    return snprintf(text, bytes,
                    "step %s met the index %" PRId64 ", valid are %" PRId64 " to %" PRId64
                    "; it was clamped, the outputs are those of the clamped index",
                    step, failure->fault_value, -failure->fault_limit, failure->fault_limit - 1);
}

/* The input or output that a failure is about; NULL: it is about none. */
static inline const struct ul_rt_tensor *ul_failure_tensor(const struct ul_model *model,
                                                           const struct ul_failure *failure)
{
    bool of_input = failure->result == UL_INPUT_MISSING || failure->result == UL_INPUT_ELSEWHERE ||
                    failure->result == UL_BUFFERS_APART;
    bool of_output = failure->result == UL_OUTPUT_MISSING || failure->result == UL_OUTPUT_ELSEWHERE;
    if (of_input && failure->tensor < model->input_count)
        return &model->inputs[failure->tensor];
    if (of_output && failure->tensor < model->output_count)
        return &model->outputs[failure->tensor];
    return NULL;
}

/* Of any result, with its numbers, the tensor's name and the device's words. As snprintf. */
static inline int ul_failure_text(char *text, size_t bytes, const struct ul_model *model,
                                  const struct ul_failure *failure)
{
    char numbers[96] = "", step[24];
    const struct ul_rt_tensor *tensor = ul_failure_tensor(model, failure);
    if (failure->result == UL_DATA_FAULT) {
        snprintf(step, sizeof step, "number %" PRIu32, failure->step);
        return ul_fault_text(text, bytes, failure, failure->node != NULL ? failure->node : step);
    }
    if (failure->needed_bytes != 0)
        snprintf(numbers, sizeof numbers, " (needed %" PRIu64 ", available %" PRIu64 ")",
                 failure->needed_bytes, failure->available_bytes);
    return snprintf(text, bytes, "%s%s%s%s%s%s", ul_result_text(failure->result),
                    tensor != NULL ? ": " : "", tensor != NULL ? tensor->name : "", numbers,
                    failure->detail != NULL ? ": " : "",
                    failure->detail != NULL ? failure->detail : "");
}

#endif
