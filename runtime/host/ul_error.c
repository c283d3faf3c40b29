/* SPDX-License-Identifier: 0BSD */
/* Messages on standard error, and untrusted text made fit for them. */
#include "ul_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

int ul_error(const struct ul_session *s, int exit_code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fflush(stdout);
    fprintf(stderr, "%s%s: error: ", s->has_line ? "\r\033[K" : "", s->program);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return exit_code;
}

int ul_out_of_memory(const struct ul_session *s, uint64_t size_bytes)
{
    return ul_error(s, UL_EXIT_NO_FIT, "cannot get %" PRIu64 " bytes of memory", size_bytes);
}

const char *ul_shown(char buffer[UL_SHOWN_BYTES], const char *text)
{
    size_t used = 0;
    const unsigned char *at = (const unsigned char *)text;
    for (; *at != '\0' && used + 8 < UL_SHOWN_BYTES; at++) {
        if (*at >= 0x20 && *at < 0x7f && *at != '\\')
            buffer[used++] = (char)*at;
        else
            used += (size_t)snprintf(buffer + used, 5, "\\x%02x", *at);
    }
    memcpy(buffer + used, *at != '\0' ? "..." : "", *at != '\0' ? 4 : 1);
    return buffer;
}
