/* Standard output, and the line of progress. */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"

#include <unistd.h>

void ul_cli_print(const struct ul_text *text)
{
    fwrite(text->data, 1, text->length, stdout);
    fflush(stdout);
}

void ul_cli_progress(void *context, const char *what)
{
    (void)context;
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, what != NULL ? "\r\033[K%s ..." : "\r\033[K", what);
        fflush(stderr);
    }
}
