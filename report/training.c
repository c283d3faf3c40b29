/* SPDX-License-Identifier: Apache-2.0 */
/* What a program that trains trains, and what keeps gradients in memory: for terminals and as JSON.
 */
#include "report/report.h"

#include <inttypes.h>

static double bytes_each(const struct ul_report_training *training)
{
    return (double)(training->parameter_bytes + training->state_bytes) /
           (double)training->parameter_count;
}

/* What small tensors and embeddings take, apart from what is asked of the others. */
static void put_wide(struct ul_text *text, const struct ul_report_training *training)
{
    uint64_t count = training->parameter_count - training->wide_count;
    uint64_t bytes = training->parameter_bytes + training->state_bytes - training->wide_bytes;
    if (training->wide_count == 0)
        return;
    if (count == 0)
        ul_text_put(text,
                    "All keep their bits: what --state-bits and --master leave as it is, such as "
                    "small tensors and embeddings, is all that there is.\n");
    else
        ul_text_printf(text,
                       "Of these, %" PRIu64 " in %" PRIu64
                       " tensors keep 32 bits, %.2f bytes each with state; the others take %.2f.\n",
                       training->wide_count, training->wide_tensor_count,
                       (double)training->wide_bytes / (double)training->wide_count,
                       (double)bytes / (double)count);
}

static void put_unreached(struct ul_text *text, const struct ul_report_training *training)
{
    if (training->unreached_count == 0)
        return;
    ul_text_printf(text,
                   "Nothing differentiable leads to the loss from %s%s; ullage inspect --train "
                   "lists all.\n",
                   ul_quote(text->arena, training->unreached),
                   training->unreached_count > 1
                       ? ul_arena_printf(text->arena, " and %u more", training->unreached_count - 1)
                       : "");
}

/* What forbids that a gradient goes into its update at once. */
static void put_kept(struct ul_text *text, const struct ul_report_training *training,
                     uint64_t gradient_bytes)
{
    struct ul_arena *arena = text->arena;
    const char *keeper = training->scaled_bytes == 0    ? "--clip-norm keeps"
                         : training->clipped_bytes == 0 ? "The loss scale keeps"
                                                        : "The loss scale and --clip-norm keep";
    if (training->clipped_bytes > 0 || training->scaled_bytes > 0)
        ul_text_printf(
            text,
            "%s all gradients until the last is known, %s; of these %s are there at the peak.\n",
            keeper,
            ul_size_exact(arena, training->scaled_bytes > 0 ? training->scaled_bytes
                                                            : training->clipped_bytes),
            ul_size_exact(arena, gradient_bytes));
    if (training->clips_twice)
        ul_text_put(text,
                    "--clip-norm forms all gradients twice, and keeps none for their norm.\n");
    if (training->shared_count == 0)
        return;
    ul_text_printf(text,
                   "The gradient of %s is a sum over the nodes that read it, kept from the last of "
                   "them to the first: %s",
                   ul_quote(arena, training->shared),
                   ul_size_exact(arena, training->largest_shared_bytes));
    if (training->shared_count > 1)
        ul_text_printf(text, "; so are those of %u more, %s with it", training->shared_count - 1,
                       ul_size_exact(arena, training->shared_bytes));
    ul_text_put(text, ".\n");
}

void ul_report_put_training(struct ul_text *text, const struct ul_report_training *training,
                            const char *optimizer, uint64_t gradient_bytes)
{
    if (training->tensor_count == 0)
        return;
    ul_text_printf(text,
                   "Trains %" PRIu64 " parameters in %" PRIu64
                   " tensors by %s, %.2f bytes each with state",
                   training->parameter_count, training->tensor_count,
                   optimizer != NULL ? optimizer : "sgd", bytes_each(training));
    if (training->statistic_count > 0)
        ul_text_printf(text, "; %" PRIu64 " running statistics follow", training->statistic_count);
    ul_text_printf(text, "; %" PRIu64 " tensor%s as %s.\n", training->fixed_count,
                   training->fixed_count == 1 ? " stays" : "s stay",
                   training->fixed_count == 1 ? "it is" : "they are");
    put_wide(text, training);
    if (training->piece_count > 0)
        ul_text_printf(text, "The loss is computed in %u pieces of %s of logits.\n",
                       training->piece_count, ul_size_exact(text->arena, training->piece_bytes));
    put_unreached(text, training);
    put_kept(text, training, gradient_bytes);
}

static void put_name(struct ul_text *text, const char *key, const char *name)
{
    if (name == NULL)
        return;
    ul_text_printf(text, ", \"%s\": ", key);
    ul_text_put_json(text, name);
}

void ul_report_put_training_json(struct ul_text *text, const struct ul_report *report)
{
    const struct ul_report_training *training = &report->training;
    if (training->tensor_count == 0)
        return;
    ul_text_printf(text,
                   "  \"training\": {\"parameters\": %" PRIu64 ", \"tensors\": %" PRIu64
                   ", \"parameter_bytes\": %" PRIu64 ", \"state_bytes\": %" PRIu64
                   ", \"bytes_per_parameter\": %.9g, \"loss_pieces\": %u, "
                   "\"loss_piece_bytes\": %" PRIu64 ", \"clip_kept_bytes\": %" PRIu64
                   ", \"scale_kept_bytes\": %" PRIu64
                   ", \"shared_parameters\": %u, \"shared_bytes\": %" PRIu64
                   ", \"shared_largest_bytes\": %" PRIu64 ", \"clips_twice\": %s"
                   ", \"wide_tensors\": %" PRIu64 ", \"wide_parameters\": %" PRIu64
                   ", \"wide_bytes\": %" PRIu64 ", \"statistics\": %" PRIu64 ", \"fixed\": %" PRIu64
                   ", \"unreached\": %u",
                   training->parameter_count, training->tensor_count, training->parameter_bytes,
                   training->state_bytes, bytes_each(training), training->piece_count,
                   training->piece_bytes, training->clipped_bytes, training->scaled_bytes,
                   training->shared_count, training->shared_bytes, training->largest_shared_bytes,
                   training->clips_twice ? "true" : "false", training->wide_tensor_count,
                   training->wide_count, training->wide_bytes, training->statistic_count,
                   training->fixed_count, training->unreached_count);
    put_name(text, "notes", training->notes);
    put_name(text, "shared", training->shared);
    put_name(text, "unreached_first", training->unreached);
    ul_text_put(text, "},\n");
}
