/* Classifies images: their bytes, one image after the other, from a file or from standard input.
   Prints a line for each: the class, how sure it is, and the scores of all classes. */
#include <stdio.h>

#include "ticket.h"

int main(int count, char **words) {
    static ticket_pixel image[TICKET_PIXELS];
    static float scores[TICKET_CLASSES];
    FILE *images = stdin;
    size_t pixels;
    if (count > 1) {
        images = fopen(words[1], "rb");
    }
    if (images == NULL) {
        fprintf(stderr, "%s cannot be read.\n", words[1]);
        return 2;
    }
    while ((pixels = fread(image, sizeof image[0], TICKET_PIXELS, images)) == TICKET_PIXELS) {
        float confidence;
        const int best = ticket_classify(image, &confidence);
        ticket_scores(image, scores);
        printf("%s\t%.4f", ticket_classes[best], (double)confidence);
        for (int i = 0; i < TICKET_CLASSES; ++i) {
            printf("\t%.9g", (double)scores[i]);
        }
        printf("\n");
    }
    if (pixels != 0) {
        fprintf(stderr, "The last image has %lu of %d pixels.\n", (unsigned long)pixels,
                TICKET_PIXELS);
        return 2;
    }
    return 0;
}
