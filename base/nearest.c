/* SPDX-License-Identifier: Apache-2.0 */
/* Which of some words was meant by one that is none of them.
 *
 * Method: the edit distance with transpositions of neighbours (optimal string alignment): the
 * fewest letters put in, left out, replaced, or swapped with the next, by the usual table of the
 * distances of all beginnings. A word is near if it is at most a third of its letters away, or
 * begins like the other one. */
#include "base/base.h"

#include <string.h>

enum { MAX_LETTERS = 32 }; /* longer words are near no other */

static uint32_t min3(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t min = a < b ? a : b;
    return min < c ? min : c;
}

static uint32_t edit_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    uint32_t table[MAX_LETTERS + 1][MAX_LETTERS + 1];
    for (uint32_t i = 0; i <= a_length; i++)
        table[i][0] = i;
    for (uint32_t k = 0; k <= b_length; k++)
        table[0][k] = k;
    for (size_t i = 1; i <= a_length; i++) {
        for (size_t k = 1; k <= b_length; k++) {
            uint32_t replaced = table[i - 1][k - 1] + (a[i - 1] != b[k - 1]);
            table[i][k] = min3(table[i - 1][k] + 1, table[i][k - 1] + 1, replaced);
            bool swaps = i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1];
            if (swaps && table[i - 2][k - 2] + 1 < table[i][k])
                table[i][k] = table[i - 2][k - 2] + 1;
        }
    }
    return table[a_length][b_length];
}

void ul_nearest_offer(struct ul_nearest *nearest, const char *word)
{
    size_t said = strlen(nearest->word);
    size_t length = strlen(word);
    if (said < 2 || said > MAX_LETTERS || length > MAX_LETTERS)
        return;
    bool begins_so = length > said && strncmp(word, nearest->word, said) == 0;
    uint32_t distance = begins_so ? 1 : edit_distance(nearest->word, said, word, length);
    bool is_near = distance <= (said > length ? said : length) / 3;
    if (!begins_so && !is_near)
        return;
    if (nearest->nearest == NULL || distance < nearest->distance) {
        nearest->nearest = word;
        nearest->distance = distance;
    }
}

const char *ul_nearest_text(struct ul_arena *arena, const struct ul_nearest *nearest,
                            const char *before)
{
    if (nearest->nearest == NULL)
        return "";
    return ul_arena_printf(arena, " (did you mean %s%s?)", before, nearest->nearest);
}
