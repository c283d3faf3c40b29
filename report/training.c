/* SPDX-License-Identifier: Apache-2.0 */
/* For terminals: what a program that trains trains, and what keeps gradients in memory. */
#include "report/report.h"

#include <inttypes.h>

/* Writes what small tensors and embeddings take; their options differ from those of the others. */
static void put_wide(struct ul_text *text, const struct ul_saved_training *training)
{
    uint64_t count = training->parameters - training->wide_parameters;
    uint64_t bytes = training->parameter_bytes + training->state_bytes - training->wide_bytes;
    if (training->wide_parameters == 0)
        return;
    if (count == 0)
        ul_text_put(text,
                    "All keep their bits: what --state-bits and --master leave as it is, such as "
                    "small tensors and embeddings, is all that there is.\n");
    else
        ul_text_printf(text,
                       "%" PRIu64 " of these, in %" PRIu64
                       " tensors, keep 32 bits, %.2f bytes each with state; others take %.2f.\n",
                       training->wide_parameters, training->wide_tensors,
                       (double)training->wide_bytes / (double)training->wide_parameters,
                       (double)bytes / (double)count);
}

static void put_unreached(struct ul_text *text, const struct ul_saved_training *training)
{
    if (training->unreached == 0)
        return;
    ul_text_printf(text,
                   "Nothing differentiable leads to the loss from %s%s; ullage inspect --train "
                   "lists all.\n",
                   ul_quote(text->arena, training->unreached_first),
                   training->unreached > 1 ? ul_arena_printf(text->arena, " and %" PRIu64 " more",
                                                             training->unreached - 1)
                                           : "");
}

/* Writes what prevents a gradient from going into its update at once. */
static void put_kept(struct ul_text *text, const struct ul_saved_training *training,
                     uint64_t gradient_bytes)
{
    struct ul_arena *arena = text->arena;
    const char *keeper = training->scale_kept_bytes == 0  ? "--clip-norm keeps"
                         : training->clip_kept_bytes == 0 ? "The loss scale keeps"
                                                          : "The loss scale and --clip-norm keep";
    if (training->clip_kept_bytes > 0 || training->scale_kept_bytes > 0)
        ul_text_printf(
            text,
            "%s all gradients until the last is known, %s; of these %s are there at the peak.\n",
            keeper,
            ul_size_exact(arena, training->scale_kept_bytes > 0 ? training->scale_kept_bytes
                                                                : training->clip_kept_bytes),
            ul_size_exact(arena, gradient_bytes));
    if (training->clips_twice)
        ul_text_put(text,
                    "--clip-norm forms all gradients twice, and keeps none for their norm.\n");
    if (training->shared_parameters == 0)
        return;
    ul_text_printf(text,
                   "The gradient of %s is a sum over the nodes that read it, kept from the last of "
                   "them to the first: %s",
                   ul_quote(arena, training->shared),
                   ul_size_exact(arena, training->shared_largest_bytes));
    if (training->shared_parameters > 1)
        ul_text_printf(text, "; so are those of %" PRIu64 " more, %s with it",
                       training->shared_parameters - 1,
                       ul_size_exact(arena, training->shared_bytes));
    ul_text_put(text, ".\n");
}

void ul_report_put_training(struct ul_text *text, const struct ul_saved_training *training,
                            const char *optimizer, uint64_t gradient_bytes)
{
    if (training->tensors == 0)
        return;
    ul_text_printf(text,
                   "Trains %" PRIu64 " parameters in %" PRIu64
                   " tensors by %s, %.2f bytes each with state",
                   training->parameters, training->tensors, optimizer != NULL ? optimizer : "sgd",
                   training->bytes_per_parameter);
    if (training->statistics > 0)
        ul_text_printf(text, "; %" PRIu64 " running statistics follow", training->statistics);
    ul_text_printf(text, "; %" PRIu64 " tensor%s as %s.\n", training->fixed,
                   training->fixed == 1 ? " stays" : "s stay",
                   training->fixed == 1 ? "it is" : "they are");
    put_wide(text, training);
    if (training->loss_pieces > 0)
        ul_text_printf(text, "The loss is computed in %" PRIu64 " pieces of %s of logits.\n",
                       training->loss_pieces,
                       ul_size_exact(text->arena, training->loss_piece_bytes));
    put_unreached(text, training);
    put_kept(text, training, gradient_bytes);
}
