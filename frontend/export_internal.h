/* SPDX-License-Identifier: Apache-2.0 */
/* What writing a model again shares: low-rank factors of a weight, and nodes in training mode. */
#ifndef UL_EXPORT_INTERNAL_H
#define UL_EXPORT_INTERNAL_H

#include "frontend/frontend_internal.h"

/* export_lora.c */

/* Whether the factors are those of a weight of that type. */
bool ul_export_lora_fits(const struct ul_export_tensor *adapter, const struct ul_type *weight);
/* The elements of the weight plus the product of its factors, summed in double and rounded once. */
const unsigned char *ul_export_lora_merge(struct ul_arena *arena,
                                          const struct ul_export_tensor *adapter,
                                          const struct ul_tensor *weight);
/* Writes fields of the GraphProto that has the weight, which is called NAME/base there: the
 * factors, and nodes that make NAME. They go before its other nodes. */
void ul_export_lora_apart(struct ul_text *graph, const struct ul_export_tensor *adapter,
                          const struct ul_type *weight);

/* export_mode.c */

/* What a node loses, so that it computes as in inference. */
struct ul_export_mode {
    bool trains;
    const char *name, *attribute; /* NULL: it loses none */
    const char *becomes;          /* its operator, of ai.onnx; NULL: it stays */
    uint32_t input_count, output_count, inputs_seen, outputs_seen;
    const char *outputs[2],
        *running[2];   /* outputs that it loses, and the inputs that hold their values then */
    const char *other; /* the first output that it loses and that is no input; or NULL */
};

/* Reads the NodeProto in `data`. A node that does not train has trains = false, and loses
 * nothing. */
void ul_export_mode_read(struct ul_export_mode *mode, struct ul_arena *arena,
                         const unsigned char *data, const struct ul_wire_field *node);
/* Whether the node loses this field; ask about its fields in order. */
bool ul_export_mode_drops(struct ul_export_mode *mode, const unsigned char *data,
                          const struct ul_wire_field *field);
/* Writes the field of a NodeProto that names its operator; the second function writes all fields of
 * an Identity. */
void ul_export_mode_operator(struct ul_text *node, const char *op);
void ul_export_mode_identity(struct ul_text *node, const char *from, const char *to);

#endif
