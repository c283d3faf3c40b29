/* SPDX-License-Identifier: 0BSD */
/*
 * An arena that is made of several memories, its banks: the first is what everything calls the
 * arena, and holds a mark and the addresses of the others at a place of the plan's. Offsets go on
 * from bank to bank.
 *
 * Ownership: the memories are the caller's. Pure C99; needs no library.
 */
#ifndef UL_BANKS_H
#define UL_BANKS_H

#include "ul_model.h"

#include <string.h>

static const unsigned char ul_bank_mark[8] = {'u', 'l', 'b', 'a', 'n', 'k', 's', 1};

/* Where bank number `bank` lies. */
static inline unsigned char *ul_bank_of(const struct ul_model *model, const unsigned char *arena,
                                        uint32_t bank)
{
    unsigned char *place;
    if (bank == 0)
        return (unsigned char *)(uintptr_t)arena;
    memcpy(&place,
           arena + model->bank_state_offset_bytes + sizeof ul_bank_mark + (bank - 1) * sizeof place,
           sizeof place);
    return place;
}

/* Where an offset of the arena lies. */
static inline unsigned char *ul_at(const struct ul_model *model, const unsigned char *arena,
                                   uint64_t offset_bytes)
{
    uint32_t bank = model->bank_count;
    while (bank > 1 && (model->banks[bank - 1].size_bytes == 0 ||
                        offset_bytes < model->banks[bank - 1].begin_bytes))
        bank--;
    if (bank < 2)
        return (unsigned char *)(uintptr_t)arena + offset_bytes;
    return ul_bank_of(model, arena, bank - 1) + (offset_bytes - model->banks[bank - 1].begin_bytes);
}

/* Notes where the banks lie; NULL: one behind the other, in one buffer. */
static inline void ul_banks_note(const struct ul_model *model, unsigned char *arena,
                                 void *const *banks)
{
    unsigned char *at = arena + model->bank_state_offset_bytes;
    if (model->bank_count == 0)
        return;
    memcpy(at, ul_bank_mark, sizeof ul_bank_mark);
    for (uint32_t b = 1; b < model->bank_count; b++) {
        unsigned char *place =
            banks != NULL ? (unsigned char *)banks[b] : arena + model->banks[b].begin_bytes;
        memcpy(at + sizeof ul_bank_mark + (b - 1) * sizeof place, &place, sizeof place);
    }
}

/* Whether they were noted. */
static inline bool ul_banks_are_noted(const struct ul_model *model, const unsigned char *arena)
{
    return model->bank_count == 0 ||
           memcmp(arena + model->bank_state_offset_bytes, ul_bank_mark, sizeof ul_bank_mark) == 0;
}

#endif
