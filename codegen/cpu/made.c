/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the primitives of a call as a program does, so that they can be counted, and keeps the
 * counts. */
#include "codegen/cpu/dnnl_internal.h"

#include <string.h>

static bool make_offered(void *context, const_dnnl_primitive_desc_t offer)
{
    struct ul_dnnl_made *made = context;
    if (strcmp(ul_dnnl_offer_name(offer), made->call->implementation) != 0)
        return false;
    made->good = dnnl_primitive_create(&made->primitives[made->count++], offer) == dnnl_success &&
                 made->good;
    return true;
}

static void make_copy(struct ul_dnnl_made *made, const dnnl_memory_desc_t *from,
                      const dnnl_memory_desc_t *to)
{
    dnnl_primitive_desc_t copy = NULL;
    UL_ASSERT(made->count < UL_DNNL_PRIMITIVES);
    made->good = made->good &&
                 dnnl_reorder_primitive_desc_create(&copy, from, made->dnnl->engine, to,
                                                    made->dnnl->engine, NULL) == dnnl_success &&
                 dnnl_primitive_create(&made->primitives[made->count++], copy) == dnnl_success;
    if (copy != NULL)
        (void)dnnl_primitive_desc_destroy(copy);
}

/* Makes the copies between the tensors and what the primitive sees. */
static void make_copies(struct ul_dnnl_made *made)
{
    const struct ul_call *call = made->call;
    struct ul_dnnl_desc seen;
    dnnl_memory_desc_t plain;
    made->good =
        made->good && ul_dnnl_describe(&seen, call, false, ul_dnnl_scales(made->dnnl, call));
    if (made->good && call->src_copy_bytes != 0 && ul_dnnl_plain(&plain, &call->src))
        make_copy(made, &plain, &seen.src);
    if (made->good && call->weights_copy_bytes != 0 && ul_dnnl_plain(&plain, &call->weights))
        make_copy(made, &plain, &seen.weights);
    if (made->good && call->dst_copy_bytes != 0 && ul_dnnl_plain(&plain, &call->dst))
        make_copy(made, &seen.dst, &plain);
    if (seen.attr != NULL)
        (void)dnnl_primitive_attr_destroy(seen.attr);
}

void ul_dnnl_make(struct ul_dnnl_made *made)
{
    made->good = true;
    (void)ul_dnnl_each_offer(made->dnnl, made->call, false, make_offered, made);
    made->good = made->good && made->count > 0;
    make_copies(made);
}

void ul_dnnl_unmake(struct ul_dnnl_made *made)
{
    for (uint32_t i = 0; i < UL_DNNL_PRIMITIVES; i++) {
        if (made->primitives[i] != NULL)
            (void)dnnl_primitive_destroy(made->primitives[i]);
        made->primitives[i] = NULL;
    }
    made->count = 0;
}

struct ul_dnnl_known *ul_dnnl_know(struct ul_dnnl *dnnl, const struct ul_call *call)
{
    UL_ASSERT(call->implementation != NULL);
    struct ul_call key = ul_dnnl_without_scales(call);
    key.implementation = NULL;
    key.pack = NULL;
    struct ul_dnnl_known **slot = &dnnl->known[ul_dnnl_hash(&key)];
    for (struct ul_dnnl_known *at = *slot; at != NULL; at = at->next) {
        if (memcmp(&at->call, &key, sizeof key) == 0 &&
            strcmp(at->implementation, call->implementation) == 0)
            return at;
    }
    struct ul_dnnl_known *known = UL_NEW(dnnl->arena, struct ul_dnnl_known);
    known->call = key;
    known->implementation = call->implementation;
    known->next = *slot;
    *slot = known;
    return known;
}
